// Runs one scenario of the conformance suite against `nugget serve`. A server on loopback starts one process for
// each HTTP session, forwards every message to it, and returns its responses.
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const sessions = new Map();

function start() {
  const server = spawn(process.env.NUGGET, ["serve"], { stdio: ["pipe", "pipe", "inherit"] });
  const waiting = new Map();
  createInterface({ input: server.stdout }).on("line", (line) => {
    const message = JSON.parse(line);
    const answer = waiting.get(message.id);
    if (answer && !message.method) {
      waiting.delete(message.id);
      answer(message);
    }
  });
  const id = randomUUID();
  sessions.set(id, { server, waiting });
  return id;
}

const http = createServer(async (request, response) => {
  if (request.method === "DELETE") return response.writeHead(200).end();
  if (request.method !== "POST") return response.writeHead(405).end();
  let body = "";
  for await (const part of request) body += part;
  const message = JSON.parse(body);
  const id = message.method === "initialize" ? start() : request.headers["mcp-session-id"];
  const session = sessions.get(id);
  if (!session) return response.writeHead(404).end();
  const answered = message.id === undefined ? null : new Promise((resolve) => session.waiting.set(message.id, resolve));
  session.server.stdin.write(JSON.stringify(message) + "\n");
  if (!answered) return response.writeHead(202).end();
  response.writeHead(200, { "content-type": "application/json", "mcp-session-id": id });
  response.end(JSON.stringify(await answered));
});

http.listen(0, "127.0.0.1", () => {
  const url = `http://127.0.0.1:${http.address().port}/mcp`;
  const suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
  const scenario = spawn(process.execPath, [suite, "server", "--url", url, "--scenario", process.argv[2]], { stdio: "inherit" });
  scenario.on("exit", (code) => {
    for (const { server } of sessions.values()) server.stdin.end();
    http.closeAllConnections();
    http.close();
    process.exitCode = code === null ? 1 : code;
  });
});
