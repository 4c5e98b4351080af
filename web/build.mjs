// Builds the dashboard: the page, its picture, one style sheet, and the script in several files, of which some are loaded
// when a part of the page is first shown, each compressed; and, for memoird, a C table of them.
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

/** All that a browser loads to show the page, compressed: it opens at once also over a slow line. */
const SIZE_MAX = 80 * 1000

/** The same with what is loaded when it is first shown. */
const SIZE_ALL_MAX = 120 * 1000

const here = dirname(fileURLToPath(import.meta.url))

/** By the end of the name. */
const TYPES = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
}
const typeOf = (name) => TYPES[name.split('.').pop()]

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
    splitting: true,
    chunkNames: '[name]-[hash]',
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
  return { files, first: firstOf(result.metafile), inputs: inputs.map((name) => join(here, name)) }
}

/** Scripts that the page's own script loads at once, itself among them. */
function firstOf(metafile) {
  const found = new Set()
  const visit = (path) => {
    if (found.has(path)) return
    found.add(path)
    for (const one of metafile.outputs[path]?.imports ?? []) if (one.kind === 'import-statement') visit(one.path)
  }
  visit(Object.keys(metafile.outputs).find((path) => path.endsWith('/app.js')))
  return new Set([...found].map((path) => path.split('/').pop()))
}

/** The same bytes from the same source: no time in the header. */
const compress = (bytes) => gzipSync(bytes, { level: 9 })

function cTable(files) {
  const lines = ['/* The dashboard, compressed. Made by web/build.mjs. */', '#include "http/static.h"', '', '#include <stddef.h>', '']
  const entries = []
  for (const [name, bytes] of files) {
    const packed = compress(bytes)
    const symbol = name.replace(/[^A-Za-z0-9]/g, '_')
    lines.push(`static const unsigned char ${symbol}[] = {`)
    for (let at = 0; at < packed.length; at += 24) lines.push([...packed.subarray(at, at + 24)].join(',') + ',')
    lines.push('};', '')
    const etag = createHash('sha256').update(bytes).digest('hex').slice(0, 16)
    const path = name === 'index.html' ? '/' : `/${name}`
    entries.push(`    {"${path}", "${typeOf(name)}", ${symbol}, sizeof(${symbol}), "${etag}", false},`)
  }
  lines.push('const struct http_static web_files[] = {', ...entries, '    {0},', '};', '')
  return lines.join('\n')
}

async function build(options) {
  const { files, first, inputs } = await bundle(options.dev)
  let total = 0
  let all = 0
  mkdirSync(options.out, { recursive: true })
  for (const [name, bytes] of files) {
    if (!typeOf(name)) throw new Error(`what is ${name}?`)
    const packed = compress(bytes)
    all += packed.length
    if (!name.endsWith('.js') || first.has(name)) total += packed.length
    writeFileSync(join(options.out, name), bytes)
    writeFileSync(join(options.out, `${name}.gz`), packed)
  }
  const kb = (n) => `${(n / 1000).toFixed(1)} kB`
  console.log(`dashboard: ${kb(total)} compressed, of ${kb(SIZE_MAX)}; ${kb(all)} with what is loaded later`)
  if (!options.dev && all > SIZE_ALL_MAX) throw new Error(`all of the dashboard has ${all} bytes compressed, more than ${SIZE_ALL_MAX}`)
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
