/** Bundles test/*.test.ts with Vite into a temporary folder and runs them with node --test. */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "vite";

const here = import.meta.dirname;
const cache = join(here, "../node_modules/.cache"); // inside, so that packages resolve
mkdirSync(cache, { recursive: true });
const out = mkdtempSync(join(cache, "tests-"));
const input = readdirSync(here).filter((name) => name.endsWith(".test.ts")).map((name) => join(here, name));
try {
  await build({
    configFile: false,
    root: join(here, ".."),
    logLevel: "warn",
    // bundled, because their entry points name packages that we do not have
    ssr: { noExternal: ["loro-websocket", "loro-adaptors"] },
    build: { ssr: true, target: "node20", outDir: out, minify: false, rollupOptions: { input, output: { entryFileNames: "[name].mjs" } } },
  });
  const files = input.map((path) => join(out, `${basename(path, ".ts")}.mjs`));
  const { status } = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit", cwd: join(here, "..") });
  process.exitCode = status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
