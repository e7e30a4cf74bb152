// Forwards HTTP requests to a server with a token, as the conformance suite sends none, and runs one scenario.
// SERVER: host:port. TOKEN: the bearer token. SUITE: the suite's program. The argument is the scenario's name.
import { spawn } from "node:child_process";
import { createServer, request } from "node:http";

const [hostname, port] = process.env.SERVER.split(":");
const proxy = createServer((incoming, outgoing) => {
  const headers = { ...incoming.headers, authorization: `Bearer ${process.env.TOKEN}` };
  const { method, url: path } = incoming;
  const forwarded = request({ hostname, port, method, path, headers }, (response) => {
    outgoing.writeHead(response.statusCode, response.headers);
    response.pipe(outgoing);
  });
  forwarded.on("error", () => outgoing.destroy());
  incoming.pipe(forwarded);
});

proxy.listen(0, "127.0.0.1", () => {
  const url = `http://127.0.0.1:${proxy.address().port}/mcp`;
  const scenario = spawn(process.execPath, [process.env.SUITE, "server", "--url", url, "--scenario", process.argv[2]], { stdio: "inherit" });
  scenario.on("exit", (code) => {
    proxy.closeAllConnections();
    proxy.close();
    process.exitCode = code === null ? 1 : code;
  });
});
