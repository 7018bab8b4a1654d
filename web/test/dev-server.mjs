/**
 * The built pages beside rooms in memory, for work on the page without lorogo:
 * `node test/dev-server.mjs [port]`, or both by name from a test. POST /control
 * with JSON turns the switches of rooms.mjs.
 */
import { createReadStream, existsSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { Rooms } from "./rooms.mjs";

const PAGES = join(import.meta.dirname, "../../lorogo_gateway/built");
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".wasm": "application/wasm" };
const POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'";

const server = createServer((request, response) => {
  const path = normalize(new URL(request.url ?? "/", "http://localhost").pathname);
  if (request.method === "POST" && path === "/control") {
    let body = "";
    request.on("data", (part) => { body += part; });
    request.on("end", () => {
      control(JSON.parse(body));
      response.end("{}");
    });
    return;
  }
  if (path === "/v1/session") {
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ open: true, subject: "", expires: null, documents: {}, operator: true }));
    return;
  }
  const file = join(PAGES, path.startsWith("/assets/") ? path : path === "/dashboard" ? "dashboard.html" : "index.html");
  if (!existsSync(file)) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream", "content-security-policy": POLICY });
  createReadStream(file).pipe(response);
});

const rooms = new Rooms({ server, path: "/ws" });

function control({ call, set }) {
  Object.assign(rooms, set ?? {});
  for (const [name, ...values] of call ?? []) rooms[name](...values);
}

const port = Number(process.argv[2] ?? 8791);
server.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
