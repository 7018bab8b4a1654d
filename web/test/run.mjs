// Bundles every src/**/*.test.ts and runs it with `node --test`.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const web = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const tests = readdirSync(join(web, "src"), { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".test.ts"));
const out = mkdtempSync(join(web, "node_modules", ".tests-")); // inside, so that packages are found
try {
  const input = Object.fromEntries(tests.map((name) => [name.replaceAll("/", "-").replace(/\.ts$/, ""), join(web, "src", name)]));
  await build({
    root: web, configFile: false, logLevel: "warn", publicDir: false,
    build: { ssr: true, target: "node20", outDir: relative(web, out), emptyOutDir: true, minify: false,
      rollupOptions: { input, output: { entryFileNames: "[name].mjs" } } },
  });
  const files = Object.keys(input).map((name) => join(out, `${name}.mjs`));
  const run = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" });
  process.exitCode = run.status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
