import { defineConfig } from "vite";
import wasm from "vite-plugin-wasm";

// `lorogo dev` serves the WebSocket; through this proxy it has the page's own origin.
export default defineConfig({
  plugins: [wasm()],
  server: { proxy: { "/ws": { target: "ws://127.0.0.1:8080", ws: true } } },
  build: { target: "es2022" },
});
