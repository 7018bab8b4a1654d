import { resolve } from "node:path";
import { defineConfig } from "vite";
import wasm from "vite-plugin-wasm";

// Two pages, built into the Python package that serves them.
export default defineConfig({
  root: __dirname,
  plugins: [wasm()],
  server: {
    // `npx vite` beside a running `lorogo dev`: pages reload as you edit them
    proxy: {
      "/ws": { target: "ws://127.0.0.1:8080", ws: true },
      "/v1": "http://127.0.0.1:8080",
      "/readyz": "http://127.0.0.1:8080",
    },
  },
  build: {
    target: "es2022",
    outDir: resolve(__dirname, "../lorogo_gateway/pages"),
    emptyOutDir: true,
    rollupOptions: {
      input: {
        index: resolve(__dirname, "index.html"),
        dashboard: resolve(__dirname, "dashboard.html"),
      },
    },
  },
});
