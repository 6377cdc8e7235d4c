/** The open connections of a broker: clients, their libraries, users and load. */

import { dataList } from "../../parts/data_list.js";
import { element, set, setText, show } from "../../parts/elements.js";
import { bytes, count, durationOf, rate, shortTime } from "../../parts/format.js";
import { href } from "../../shell/routes.js";

const FIELDS = "address,client_id,client_instance_id,software_name,software_version,user,listener,is_broker,bytes_in_rate,bytes_out_rate,in_flight,idle_ms,opened_at_ms,bytes_in,bytes_out";

const FILTERS = [
  ["", "All connections"], ["is_broker=false", "Clients only"], ["is_broker=true", "Brokers only"], ["in_flight>0", "With requests in flight"],
  ["software_name~librdkafka", "librdkafka clients"],
];

/** The client ID; a link to the metrics of a client that pushes them. */
function clientPart() {
  const link = element("a");
  const text = element("span");
  return {
    node: element("span", null, link, text),
    update({ client_id: name, client_instance_id: id, is_broker: isBroker }) {
      const label = `${name ?? "–"}${isBroker ? " (broker)" : ""}`;
      const hasMetrics = id !== null;
      set(link, "href", hasMetrics ? href(["client", id]) : null);
      show(link, hasMetrics);
      show(text, !hasMetrics);
      setText(hasMetrics ? link : text, label);
    },
  };
}

/** @param {import("../../shell/page.js").Page} page @param {string} id  of the broker */
export function brokerConnections(page, id) {
  return dataList(page, {
    path: ["brokers", id, "connections"], caption: `Connections of broker ${id}`, noun: "connection", filters: FILTERS, fields: FIELDS,
    keyOf: ({ address }) => address,
    columns: [
      { header: "Address", names: true, className: "mono", sort: "address", text: ({ address }) => address },
      { header: "Client", sort: "client_id", part: clientPart },
      { header: "Software", className: "nowrap", sort: "software_name", text: ({ software_name: name, software_version: version }) => [name, version].filter(Boolean).join(" ") || null },
      { header: "User", sort: "user", text: ({ user }) => user },
      { header: "Listener", sort: "listener", text: ({ listener }) => listener },
      { header: "In", numeric: true, sort: "-bytes_in_rate", text: ({ bytes_in_rate: value }) => rate(value) },
      { header: "Out", numeric: true, sort: "-bytes_out_rate", text: ({ bytes_out_rate: value }) => rate(value) },
      { header: "Received", numeric: true, sort: "-bytes_in", text: ({ bytes_in: value }) => bytes(value) },
      { header: "Sent", numeric: true, sort: "-bytes_out", text: ({ bytes_out: value }) => bytes(value) },
      { header: "In flight", numeric: true, sort: "-in_flight", text: ({ in_flight: number }) => count(number) },
      { header: "Idle", numeric: true, sort: "-idle_ms", text: ({ idle_ms: idle }) => durationOf(idle) },
      { header: "Opened", className: "nowrap", sort: "opened_at_ms", text: ({ opened_at_ms: at }) => shortTime(at) },
    ],
  }).node;
}
