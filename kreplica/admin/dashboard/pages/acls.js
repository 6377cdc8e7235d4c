/** Access: the ACLs of resources and users, and explanations of decisions. */

import { chipPart, element, setText, show } from "../parts/elements.js";
import { counted } from "../parts/format.js";
import { choice, delayed, field, topicField } from "../parts/forms.js";
import { buttonsPart } from "../parts/row_buttons.js";
import { pager, table } from "../parts/tables.js";
import { get, pathOf } from "../shell/api.js";
import { createAcl, deleteAcl } from "./acl_changes.js";
import { aclText, CLUSTER, OPERATIONS, resourceText, TYPES, words } from "./acl_words.js";

const PERIOD_MS = 5000;
const PAGE = 100;

/** @param {import("../shell/page.js").Page} page */
export function open(page) {
  page.title("Access");
  const { type = "", name = "", principal = "" } = page.query;
  let again = () => {};
  const then = async (done) => (await done) && again();
  const create = element("button", { type: "button", class: "primary", onclick: () => then(createAcl(page.query)) }, "Create ACL");
  page.actions.append(create);
  const fields = {
    type: choice({ label: "Resource" }, [["", "All"], ...TYPES], type),
    name: topicField({ label: "Name", value: name }),
    principal: field({ label: "Principal", value: principal, placeholder: "User:alice", autocomplete: "off", spellcheck: "false" }),
  };
  const list = aclTable(then);
  const pages = pager(["acls"]);
  const search = element("div", { class: "fields", role: "search" }, Object.values(fields).map(({ node }) => node));
  page.add(element("div", { class: "stack" }, search, list.node, pages.node));
  again = page.poll(PERIOD_MS, async () => {
    const { acls, next } = await get(pathOf("acls"), { ...filterOf(page.query), limit: PAGE, after: page.query.after }, page.signal);
    list.update(acls);
    pages.update(page.query, next, counted(acls.length, "ACL"));
  });
  const adapt = () => show(fields.name.node, fields.type.input.value !== "cluster");
  const chosen = () => {
    page.remember({ ...Object.fromEntries(Object.entries(fields).map(([key, { input }]) => [key, input.value.trim()])), after: "" });
    again();
  };
  fields.type.input.addEventListener("change", adapt);
  Object.values(fields).forEach(({ input }) => input.addEventListener("input", delayed(chosen)));
  adapt();
  page.section("Check access", question(page));
}

/** The ACLs that apply to the named resource, including those for all names and for prefixes. */
function filterOf({ type, name, principal }) {
  const named = type === "cluster" ? CLUSTER : name;
  return { resource_type: type, resource_name: named, pattern_type: named ? "match" : "", principal };
}

function aclTable(then) {
  return table({
    caption: "ACLs",
    keyOf: (acl) => Object.values(acl).join("\n"),
    empty: "No ACL matches.",
    columns: [
      { header: "Principal", names: true, text: ({ principal }) => principal },
      { header: "Permission", part: chipPart(({ permission }) => (permission === "allow" ? ["good", "Allow"] : ["bad", "Deny"])) },
      { header: "Operation", text: ({ operation }) => words(operation) },
      { header: "Resource", text: resourceText },
      { header: "Host", text: ({ host }) => (host === "*" ? "all" : host) },
      { header: "(Actions)", className: "cell-actions", part: buttonsPart((acl) => [["Delete", () => then(deleteAcl(acl))]]) },
    ],
  });
}

/** Fields for a user, an operation and a resource, and the explanation of the decision. */
function question(page) {
  const { principal: user = "", type = "", name: resource = "" } = page.query;
  const principal = field({ label: "User", value: user, placeholder: "User:alice", required: true, autocomplete: "off", spellcheck: "false" });
  const operation = choice({ label: "Operation" }, OPERATIONS, "read");
  const kind = choice({ label: "On" }, TYPES, type || "topic");
  const name = field({ label: "Name of the resource", value: resource, autocomplete: "off", spellcheck: "false" });
  const host = field({ label: "Address (optional)", autocomplete: "off", spellcheck: "false" });
  const answer = element("p", { role: "status" });
  const adapt = () => show(name.node, kind.input.value !== "cluster");
  const explain = async () => {
    const found = await get(pathOf("why", "access"), {
      principal: principal.input.value.trim(),
      operation: operation.input.value,
      resource_type: kind.input.value,
      resource_name: kind.input.value === "cluster" ? CLUSTER : name.input.value.trim(),
      host: host.input.value.trim(),
    }, page.signal);
    setText(answer, found.acl ? `${found.summary} ${aclText(found.acl)}.` : found.summary);
    answer.className = `health ${found.allowed ? "good" : "bad"}`;
  };
  kind.input.addEventListener("change", adapt);
  adapt();
  const form = element("form", {
    class: "fields",
    onsubmit: (event) => {
      event.preventDefault();
      page.once(explain);
    },
  }, principal.node, operation.node, kind.node, name.node, host.node, element("button", { class: "primary" }, "Explain"));
  return element("div", { class: "stack" }, form, answer);
}
