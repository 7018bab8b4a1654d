import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";
import wasm from "vite-plugin-wasm";

const pages = resolve(import.meta.dirname, "../lorogo_gateway/built");

// Compressed once, here, so that the gateway never has to: WebAssembly takes a fifth of a second.
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      for (const name of readdirSync(pages, { recursive: true, encoding: "utf8" })) {
        const path = join(pages, name);
        if (!statSync(path).isFile() || !/\.(js|css|html|svg|wasm)$/.test(name)) continue;
        const bytes = readFileSync(path);
        const quality = { [constants.BROTLI_PARAM_QUALITY]: bytes.length > 1_000_000 ? 9 : 11 };
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: quality }));
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
      }
    },
  };
}

// Two pages, built into the Python package that serves them.
export default defineConfig({
  root: import.meta.dirname,
  plugins: [wasm(), compressed()],
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
    outDir: pages,
    emptyOutDir: true,
    rollupOptions: {
      input: {
        index: resolve(import.meta.dirname, "index.html"),
        dashboard: resolve(import.meta.dirname, "dashboard.html"),
      },
    },
  },
});
