// Builds the dashboard: one script, one style sheet, the page and its picture, each compressed; and, for memoird, a C
// table of them.
//
// Usage: node build.mjs [--out DIR] [--c FILE [--deps FILE]] [--dev]   build into DIR (default: ../build/web)
//        node build.mjs --test [--out DIR]                             run the unit tests of the modules
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import * as esbuild from 'esbuild'

/** All that a browser loads, compressed: a page that opens at once also over a slow line. */
const SIZE_MAX = 80 * 1000

const here = dirname(fileURLToPath(import.meta.url))

const TYPES = {
  'index.html': 'text/html; charset=utf-8',
  'app.js': 'text/javascript; charset=utf-8',
  'app.css': 'text/css; charset=utf-8',
  'favicon.svg': 'image/svg+xml',
}

/** Taken as they are. */
const PLAIN = ['index.html', 'favicon.svg']

function parse(args) {
  const options = { out: join(here, '../build/web'), c: null, deps: null, test: false, dev: false }
  for (let i = 0; i < args.length; i++) {
    if (args[i] === '--test') options.test = true
    else if (args[i] === '--dev') options.dev = true
    else if (args[i] === '--out' && args[i + 1]) options.out = args[++i]
    else if (args[i] === '--c' && args[i + 1]) options.c = args[++i]
    else if (args[i] === '--deps' && args[i + 1]) options.deps = args[++i]
    else throw new Error(`unknown argument '${args[i]}'`)
  }
  return options
}

const common = {
  bundle: true,
  format: 'esm',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  logLevel: 'warning',
  absWorkingDir: here,
}

/** uPlot hangs every way to draw a line, and more, on itself, used or not. What no chart of ours has is cut off, so that it
 * is left out: 2.5 kB. Where uPlot changes, the text is not found and all stays as it is. */
const leanCharts = {
  name: 'lean-charts',
  setup(build) {
    build.onLoad({ filter: /uPlot\.esm\.js$/ }, ({ path }) => ({
      contents: readFileSync(path, 'utf8').replace(/^.*\b(paths\.(stepped|bars|spline)|uPlot\.join)\s*=.*$/gm, ''),
      loader: 'js',
    }))
  },
}

async function bundle(dev) {
  const result = await esbuild.build({
    ...common,
    entryPoints: { app: 'src/main.tsx' },
    outdir: '/out',
    write: false,
    plugins: [leanCharts],
    minify: !dev,
    sourcemap: dev ? 'inline' : false,
    target: ['chrome100', 'firefox100', 'safari15'],
    legalComments: 'none',
    metafile: true,
    define: { 'process.env.NODE_ENV': '"production"' },
  })
  const files = new Map()
  for (const name of PLAIN) files.set(name, readFileSync(join(here, 'src', name)))
  for (const file of result.outputFiles) files.set(file.path.split('/').pop(), Buffer.from(file.contents))
  const inputs = [...Object.keys(result.metafile.inputs), ...PLAIN.map((name) => `src/${name}`)]
  return { files, inputs: inputs.map((name) => join(here, name)) }
}

/** The same bytes from the same source: no time in the header. */
const compress = (bytes) => gzipSync(bytes, { level: 9 })

function cTable(files) {
  const lines = ['/* The dashboard, compressed. Made by web/build.mjs. */', '#include "http/static.h"', '', '#include <stddef.h>', '']
  const entries = []
  for (const [name, bytes] of files) {
    const packed = compress(bytes)
    const symbol = name.replace(/[^a-z0-9]/g, '_')
    lines.push(`static const unsigned char ${symbol}[] = {`)
    for (let at = 0; at < packed.length; at += 24) lines.push([...packed.subarray(at, at + 24)].join(',') + ',')
    lines.push('};', '')
    const etag = createHash('sha256').update(bytes).digest('hex').slice(0, 16)
    const path = name === 'index.html' ? '/' : `/${name}`
    entries.push(`    {"${path}", "${TYPES[name]}", ${symbol}, sizeof(${symbol}), "${etag}", false},`)
  }
  lines.push('const struct http_static web_files[] = {', ...entries, '    {0},', '};', '')
  return lines.join('\n')
}

async function build(options) {
  const { files, inputs } = await bundle(options.dev)
  let total = 0
  mkdirSync(options.out, { recursive: true })
  for (const [name, bytes] of files) {
    if (!TYPES[name]) throw new Error(`what is ${name}?`)
    const packed = compress(bytes)
    total += packed.length
    writeFileSync(join(options.out, name), bytes)
    writeFileSync(join(options.out, `${name}.gz`), packed)
  }
  const kb = (n) => `${(n / 1000).toFixed(1)} kB`
  console.log(`dashboard: ${kb(total)} compressed, of ${kb(SIZE_MAX)}`)
  if (!options.dev && total > SIZE_MAX) throw new Error(`the dashboard has ${total} bytes compressed, more than ${SIZE_MAX}`)
  if (options.c) writeFileSync(options.c, cTable(files))
  // What it was made of, for ninja.
  if (options.deps) writeFileSync(options.deps, `${options.c}: ${inputs.map((name) => name.replace(/ /g, '\\ ')).join(' ')}\n`)
}

/** Each test/*.test.ts becomes a module that node's own test runner runs. */
async function test(options) {
  const out = resolve(options.out, 'test')
  const tests = readdirSync(join(here, 'test')).filter((name) => name.endsWith('.test.ts'))
  await esbuild.build({
    ...common,
    entryPoints: tests.map((name) => `test/${name}`),
    outdir: out,
    outExtension: { '.js': '.mjs' },
    platform: 'node',
    target: 'node18',
  })
  const run = spawnSync(process.execPath, ['--test', ...tests.map((name) => join(out, name.replace(/\.ts$/, '.mjs')))], {
    stdio: 'inherit',
  })
  return run.status ?? 1
}

try {
  const options = parse(process.argv.slice(2))
  if (options.test) process.exitCode = await test(options)
  else await build(options)
} catch (error) {
  console.error(`web/build.mjs: ${error.message}`)
  process.exitCode = 1
}
