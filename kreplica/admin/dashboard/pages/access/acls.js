/** Access: the ACLs of resources and users, and a check whether a user may access a resource. */

import { chipPart, element, setText, show } from "../../parts/elements.js";
import { pluralize } from "../../parts/format.js";
import { selectField, debounce, field, topicField } from "../../parts/forms.js";
import { buttonsPart } from "../../parts/row_buttons.js";
import { pager, table } from "../../parts/tables.js";
import { get, pathOf } from "../../shell/api.js";
import { createAcl, deleteAcl } from "./acl_changes.js";
import { aclText, CLUSTER, OPERATIONS, resourceText, RESOURCE_TYPES, labelOf } from "./acl_labels.js";

const PERIOD_MS = 5000;
const PAGE = 100;

/** @param {import("../../shell/page.js").Page} page */
export function open(page) {
  page.title("Access");
  const { type = "", name = "", principal = "" } = page.query;
  let refresh = () => {};
  const refreshAfter = async (change) => (await change) && refresh();
  const create = element("button", { type: "button", class: "primary", onclick: () => refreshAfter(createAcl(page.query)) }, "Create ACL");
  page.actions.append(create);
  const fields = {
    type: selectField({ label: "Resource" }, [["", "All"], ...RESOURCE_TYPES], type),
    name: topicField({ label: "Name", value: name }),
    principal: field({ label: "Principal", value: principal, placeholder: "User:alice", autocomplete: "off", spellcheck: "false" }),
  };
  const list = aclTable(page, refreshAfter);
  const pages = pager(["acls"]);
  const search = element("div", { class: "fields", role: "search" }, Object.values(fields).map(({ node }) => node));
  page.add(element("div", { class: "stack" }, search, list.node, pages.node));
  refresh = page.poll(PERIOD_MS, async () => {
    const { acls, next } = await get(pathOf("acls"), { ...filterOf(page.query), limit: PAGE, after: page.query.after }, page.signal);
    list.update(acls);
    pages.update(page.query, next, pluralize(acls.length, "ACL"));
  });
  const updateVisibility = () => show(fields.name.node, fields.type.input.value !== "cluster");
  const applyFilter = () => {
    page.setQuery({ ...Object.fromEntries(Object.entries(fields).map(([key, { input }]) => [key, input.value.trim()])), after: "" });
    refresh();
  };
  fields.type.input.addEventListener("change", updateVisibility);
  Object.values(fields).forEach(({ input }) => input.addEventListener("input", debounce(applyFilter)));
  updateVisibility();
  page.section("Check access", accessCheck(page));
}

/** The ACLs that apply to the named resource, including those for all names and for prefixes. */
function filterOf({ type, name, principal }) {
  const resource = type === "cluster" ? CLUSTER : name;
  return { resource_type: type, resource_name: resource, pattern_type: resource ? "match" : "", principal };
}

function aclTable(page, refreshAfter) {
  return table({
    caption: "ACLs",
    keyOf: (acl) => Object.values(acl).join("\n"),
    empty: () => (["type", "name", "principal"].some((key) => page.query[key]) ? "No ACL matches." : "There are no ACLs."),
    columns: [
      { header: "Principal", names: true, text: ({ principal }) => principal },
      { header: "Permission", part: chipPart(({ permission }) => (permission === "allow" ? ["good", "Allow"] : ["bad", "Deny"])) },
      { header: "Operation", text: ({ operation }) => labelOf(operation) },
      { header: "Resource", text: resourceText },
      { header: "Host", text: ({ host }) => (host === "*" ? "all" : host) },
      { header: "(Actions)", className: "cell-actions", part: buttonsPart((acl) => [["Delete", () => refreshAfter(deleteAcl(acl))]]) },
    ],
  });
}

/** Fields for a user, an operation and a resource, and the result of the check. */
function accessCheck(page) {
  const { principal: user = "", type = "", name: resource = "" } = page.query;
  const principal = field({ label: "User", value: user, placeholder: "User:alice", required: true, autocomplete: "off", spellcheck: "false" });
  const operation = selectField({ label: "Operation" }, OPERATIONS, "read");
  const kind = selectField({ label: "On" }, RESOURCE_TYPES, type || "topic");
  const name = field({ label: "Resource name", value: resource, autocomplete: "off", spellcheck: "false" });
  const host = field({ label: "Address (optional)", autocomplete: "off", spellcheck: "false" });
  const result = element("p", { role: "status" });
  const updateVisibility = () => show(name.node, kind.input.value !== "cluster");
  const explain = async () => {
    const decision = await get(pathOf("why", "access"), {
      principal: principal.input.value.trim(),
      operation: operation.input.value,
      resource_type: kind.input.value,
      resource_name: kind.input.value === "cluster" ? CLUSTER : name.input.value.trim(),
      host: host.input.value.trim(),
    }, page.signal);
    setText(result, decision.acl ? `${decision.summary} ${aclText(decision.acl)}.` : decision.summary);
    result.className = `health ${decision.allowed ? "good" : "bad"}`;
  };
  kind.input.addEventListener("change", updateVisibility);
  updateVisibility();
  const form = element("form", {
    class: "fields",
    onsubmit: (event) => {
      event.preventDefault();
      page.once(explain);
    },
  }, principal.node, operation.node, kind.node, name.node, host.node, element("button", { class: "primary" }, "Explain"));
  return element("div", { class: "stack" }, form, result);
}
