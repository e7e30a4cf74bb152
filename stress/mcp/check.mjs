// Talks to `nugget serve` as clients of every protocol version do, and validates every line that it writes.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import * as types from "@modelcontextprotocol/sdk/types.js";

const checked = {};

async function session(name, requests) {
  const server = spawn(process.env.NUGGET, ["serve"], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  checked[name] = 0;
  for (const { method, params, schema, fails } of requests) {
    const id = ++checked[name];
    server.stdin.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n");
    if (method === "initialize") server.stdin.write(JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }) + "\n");
    for (;;) {
      const { value, done } = await lines.next();
      if (done) throw new Error(`${name}: ${method} got no response`);
      const message = types.JSONRPCMessageSchema.parse(JSON.parse(value));
      if (message.method) {
        types.ServerNotificationSchema.parse(message);
        continue;
      }
      if (message.id !== id) throw new Error(`${name}: ${value}`);
      if (fails) types.JSONRPCErrorResponseSchema.parse(message);
      else (schema || types.ResultSchema).parse(message.result);
      break;
    }
  }
  server.stdin.end();
  const { value, done } = await lines.next();
  if (!done) throw new Error(`${name}: unexpected output: ${value}`);
  const code = await new Promise((resolve) => server.exitCode === null ? server.on("exit", resolve) : resolve(server.exitCode));
  if (code !== 0) throw new Error(`${name}: exited with ${code}`);
}

const call = (more, meta) => ({
  method: "tools/call",
  params: { name: "get_relevant_context", arguments: { task_description: "something that unit 7 knows", ...more }, _meta: { progressToken: 1, ...meta } },
  schema: types.CallToolResultSchema,
});
const clientInfo = { name: "check", version: "1" };
for (const protocolVersion of ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]) {
  await session(protocolVersion, [
    { method: "initialize", params: { protocolVersion, capabilities: {}, clientInfo }, schema: types.InitializeResultSchema },
    { method: "ping", schema: types.EmptyResultSchema },
    { method: "tools/list", schema: types.ListToolsResultSchema },
    call({}), call({ depth: "deep", files: ["src/a.rs"], budget_tokens: 400 }),
    { ...call({ depth: "all" }), fails: true },
    { method: "no/such/method", fails: true },
    { method: "tools/call", params: { name: "other" }, fails: true },
  ]);
}
const _meta = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": clientInfo,
  "io.modelcontextprotocol/clientCapabilities": {},
};
await session("2026-07-28", [
  { method: "server/discover", params: { _meta } },
  { method: "tools/list", params: { _meta }, schema: types.ListToolsResultSchema },
  call({}, _meta),
  { ...call({ files: 7 }, _meta), fails: true },
  { method: "no/such/method", params: { _meta }, fails: true },
]);
console.log(JSON.stringify(checked));
