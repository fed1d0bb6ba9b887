// Asks a gateway through OpenAI's client for Node, and prints what came back.
// Usage: node client.mjs FOLDER, where FOLDER/openai is the installed package.
import { createRequire } from "node:module";

const OpenAI = createRequire(`${process.argv[2]}/`)("openai").default;
const client = new OpenAI({ maxRetries: 0 });
const messages = [{ role: "user", content: "What is the fee on day 3?" }];
const tools = [{ type: "function", function: { name: "get_fee", parameters: { type: "object", properties: {} } } }];
const ask = (more = {}) => client.chat.completions.create({ model: "fake", messages, ...more });

const asked = [];
for (let turn = 0; turn < 2; turn += 1) asked.push((await ask()).choices[0].message.content);

let streamed = "";
for await (const piece of await ask({ stream: true })) streamed += piece.choices[0]?.delta?.content ?? "";

const called = (await ask({ tools })).choices[0].message.tool_calls[0].function.arguments;
const run = client.chat.completions.stream({ model: "fake", messages, tools });
const calledStreaming = (await run.finalChatCompletion()).choices[0].message.tool_calls[0].function.arguments;

const schema = { type: "object", properties: { amount: { type: "integer" } }, required: ["amount"] };
const structured = await client.chat.completions.parse({
  model: "fake",
  messages,
  response_format: { type: "json_schema", json_schema: { name: "Fee", schema } },
});

const models = [];
for await (const model of client.models.list()) models.push(model.id);

const stranger = new OpenAI({ maxRetries: 0, apiKey: "of nobody" });
const refused = await stranger.models.list().catch((error) => error.status);

console.log(
  JSON.stringify({
    asked,
    streamed,
    called,
    called_streaming: calledStreaming,
    amount: JSON.parse(structured.choices[0].message.content).amount,
    models,
    refused,
  }),
);
