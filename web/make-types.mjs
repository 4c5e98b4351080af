// Usage: node make-types.mjs [--check FILE] MEMOIRD
//
// Prints the types of the API that this memoird describes, or compares them with those in FILE.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { types } from './types.mjs'

const args = process.argv.slice(2)
const file = args[0] === '--check' ? args[1] : null
const memoird = args[file == null ? 0 : 2]
const made = types(JSON.parse(execFileSync(memoird, ['--print-api'], { encoding: 'utf8', maxBuffer: 16 << 20 })))
if (file == null) {
  process.stdout.write(made)
} else if (readFileSync(file, 'utf8') !== made) {
  console.error('web/src/api/schema.ts is not what memoird describes. To make it anew:')
  console.error('  node web/make-types.mjs BUILD/src/daemon/memoird >web/src/api/schema.ts')
  process.exitCode = 1
}
