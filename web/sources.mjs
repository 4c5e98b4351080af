// What the dashboard is built from, one path a line, for meson.
import { readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))

function list(folder) {
  return readdirSync(join(here, folder), { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? list(join(folder, entry.name)) : [join(folder, entry.name)],
  )
}

console.log([...list('src'), ...list('style'), 'package-lock.json', 'tsconfig.json'].sort().join('\n'))
