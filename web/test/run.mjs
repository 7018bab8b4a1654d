// Bundles every *.test.ts of src/ and test/ with Vite into a temporary folder, and runs them with node --test.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { build } from "vite";

const web = resolve(import.meta.dirname, "..");
const found = ["src", "test"].flatMap((folder) =>
  readdirSync(join(web, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => join(folder, name)),
);
const input = Object.fromEntries(found.map((name) => [name.replaceAll("/", "-").replace(/\.ts$/, ""), join(web, name)]));
const out = mkdtempSync(join(web, "node_modules", ".tests-")); // inside, so that packages are found
try {
  await build({
    root: web,
    configFile: false,
    logLevel: "warn",
    publicDir: false,
    // bundled, because their entry points name packages that we do not have
    ssr: { noExternal: ["loro-websocket", "loro-adaptors"] },
    build: {
      ssr: true,
      target: "node20",
      outDir: out,
      emptyOutDir: true,
      minify: false,
      rollupOptions: { input, output: { entryFileNames: "[name].mjs" } },
    },
  });
  const files = Object.keys(input).map((name) => join(out, `${name}.mjs`));
  const { status } = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit", cwd: web });
  process.exitCode = status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
