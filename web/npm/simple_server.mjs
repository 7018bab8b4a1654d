// The SimpleServer of loro-websocket on a free port, which it prints; it ends with its stdin.
import { createServer } from "node:net";
import { SimpleServer } from "loro-websocket/server";

const port = await new Promise((resolve) => {
  const probe = createServer().listen(0, "127.0.0.1", () => {
    const found = probe.address().port;
    probe.close(() => resolve(found));
  });
});
await new SimpleServer({ host: "127.0.0.1", port }).start();
console.log(`ws://127.0.0.1:${port}`);
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
