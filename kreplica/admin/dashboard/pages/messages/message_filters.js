/** Fields that select messages: partition, text, expression, formats and isolation. */

import { checkbox, field, selectField, showFieldError } from "../../parts/forms.js";
import { decodingChoices } from "../../parts/message_formats.js";
import { partitionChoices } from "../../parts/partition_choices.js";

const FILTER_HINT = "A CEL expression over key, value, headers, timestamp, offset and partition.";

/**
 * @param {Record<string, string>} query  of the address
 * @param {number} partitions
 * @param {import("../../parts/message_formats.js").Format[]} formats
 */
export function messageFilters(query, partitions, formats) {
  const partition = selectField({ label: "Partition", name: "partition" }, partitionChoices(partitions), query.partition ?? "");
  const search = field({ label: "Contains", name: "search", type: "search", value: query.search ?? "", autocomplete: "off", placeholder: "text or /expression/" });
  const filter = field({
    label: "Filter", name: "filter", type: "search", value: query.filter ?? "", autocomplete: "off", spellcheck: "false", maxlength: 1000,
    placeholder: "value.total > 100 && key != \"test\"", hint: FILTER_HINT,
  });
  filter.node.classList.add("wide");
  const choices = decodingChoices(formats);
  const keyFormat = selectField({ label: "Key format", name: "key_format" }, choices, query.key_format ?? "");
  const valueFormat = selectField({ label: "Value format", name: "value_format" }, choices, query.value_format ?? "");
  const isolation = selectField({ label: "Isolation", name: "isolation" },
    [["", "All"], ["read_committed", "Committed only"]], query.isolation ?? "");
  const markers = checkbox({ label: "Transaction markers", checked: query.control_records === "true" });
  return {
    nodes: [partition.node, search.node, keyFormat.node, valueFormat.node, isolation.node, markers.node, filter.node],
    /** The parameters of the address and of the API. */
    query: () => ({
      partition: partition.input.value, search: search.input.value, filter: filter.input.value.trim(), key_format: keyFormat.input.value,
      value_format: valueFormat.input.value, isolation: isolation.input.value, control_records: markers.input.checked ? "true" : "",
    }),
    /** Show the error of an invalid expression at its field; false if the error is another one. */
    showError(error) {
      const isFilter = error?.title === "INVALID_FILTER";
      showFieldError(filter, isFilter ? error.detail : "");
      const column = error?.document?.column;
      if (isFilter && column) {
        filter.input.focus();
        filter.input.setSelectionRange(column - 1, column);
      }
      return isFilter;
    },
  };
}

/** The parameters of the API in an address. @param {Record<string, string>} query */
export function selectionOf({ partition, search, filter, key_format, value_format, isolation, control_records }) {
  return { partition, search, filter, key_format, value_format, isolation, control_records };
}
