/** The formats in which keys and values are decoded and encoded. */

import { get, pathOf } from "../shell/api.js";

/** @typedef {{name: string, description: string, can_encode: boolean, needs_schema: boolean, automatic: boolean}} Format */

/** @param {AbortSignal} signal @returns {Promise<Format[]>} */
export async function readFormats(signal) {
  return (await get(pathOf("formats"), {}, signal)).formats;
}

/** @param {Format[]} formats @returns {[string, string][]} */
export function decodingChoices(formats) {
  return [["", "Automatic"], .../** @type {[string, string][]} */ (formats.map(({ name }) => [name, name]))];
}
