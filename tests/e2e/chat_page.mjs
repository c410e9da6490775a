// Uses the chat page of a running lamina server as a person would, in Node with a stand-in for a browser's document, in which what would
// be inserted as HTML is an error.
//
// Usage: node chat_page.mjs URL API_KEY     (a server with that key)
import assert from "node:assert";

const [url, key] = process.argv.slice(2);
const page = await (await fetch(url + "/")).text();

class Element {
  constructor(tag) { Object.assign(this, { tag, nodes: [], value: "", className: "", listeners: {} }); }
  get textContent() { return this.nodes.map((node) => node.textContent ?? node).join(""); }
  set textContent(text) { this.nodes = [String(text)]; }
  set innerHTML(ignored) { throw new Error("inserted as HTML"); }
  get classList() { return { add: (name) => { this.className += " " + name; } }; }
  append(...nodes) { this.nodes.push(...nodes.map((node) => node instanceof Element ? node : String(node))); }
  replaceChildren(...nodes) { this.nodes = nodes; }
  addEventListener(type, listener) { this.listeners[type] = listener; }
  requestSubmit() { this.listeners.submit({ preventDefault() {} }); }
  scrollIntoView() {}
}
const elements = {};
for (const [, tag, id] of page.matchAll(/<(\w+) id="(\w+)"/g)) elements[id] = new Element(tag);
const document = {
  getElementById: (id) => elements[id] ?? assert.fail("no element " + id),
  createElement: (tag) => new Element(tag),
};
const fetchHere = (path, options) => fetch(new URL(path, url + "/"), options);
const script = page.match(/<script[^>]*>([\s\S]*)<\/script>/)[1];
new Function("document", "fetch", script)(document, fetchHere);

const until = async (what, condition) => {
  for (const end = Date.now() + 30000; !condition();) {
    assert.ok(Date.now() < end, "it did not come to this: " + what + "; " + elements.state.textContent + elements.talk.textContent);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};
const say = async (text) => {
  elements.text.value = text;
  elements.form.requestSubmit();
  await until("an answer", () => elements.send.textContent === "Send");
  return elements.talk.nodes.at(-1);
};

await until("a key is asked for", () => elements.state.textContent.includes("API key"));
assert.match((await say("hello")).textContent, /API key/);
elements.key.value = key;
await until("the model's name", () => elements.model.textContent !== "");
assert.match(elements.state.textContent, /^serving/);
assert.ok(elements.nodes.nodes.length >= 2, "the nodes are shown");

elements.clear.listeners.click();
elements.temperature.value = "0";
elements.max_tokens.value = "16";
const ask = { temperature: 0, max_tokens: 16, messages: [{ role: "user", content: "<b>Once</b>" }] };
const headers = { "Content-Type": "application/json", Authorization: "Bearer " + key };
const answer = await (await fetch(url + "/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(ask) })).json();
assert.ok((await say("<b>Once</b>")).textContent.startsWith(answer.choices[0].message.content));
assert.equal(elements.talk.nodes[0].textContent, "<b>Once</b>");

// Others keep the server busy: the page shows their tokens too.
const busy = { prompt: "Once", max_tokens: 900, n: 8, ignore_eos: true };
const others = fetch(url + "/v1/completions", { method: "POST", headers, body: JSON.stringify(busy) });
elements.max_tokens.value = "900";
const long = say("Go on");
await until("a node that attends", () => elements.nodes.textContent.includes("attends to"));
if (elements.send.textContent === "Stop") elements.form.requestSubmit();
await long;
await others;
console.log("the page asks for a key, chats, shows who attends, and stops");
process.exit(0);
