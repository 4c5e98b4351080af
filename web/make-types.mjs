// Usage: node make-types.mjs [--check FILE] <openapi.json
//
// Prints the types of the API, or compares them with those in FILE.
import { readFileSync } from 'node:fs'
import { types } from './types.mjs'

const [option, file] = process.argv.slice(2)
const made = types(JSON.parse(readFileSync(0, 'utf8')))
if (option !== '--check') {
  process.stdout.write(made)
} else if (readFileSync(file, 'utf8') !== made) {
  console.error(`${file} is not what the description of the API gives: run script/web-types`)
  process.exitCode = 1
}
