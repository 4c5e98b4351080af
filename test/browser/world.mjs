// What the dashboard is tried against: a real memoird in folders of its own, the programs of `memoir demo`, and a
// server that leaks. Everything is waited for, nothing is slept for, and all of it ends with the test.
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

export const BUILD = process.env.MEMOIR_BUILD_ROOT ?? 'build'
const MEMOIRD = join(BUILD, 'src/daemon/memoird')
export const MEMOIR = join(BUILD, 'src/cli/memoir')
export const SIEVE = join(BUILD, 'test/browser/sieve')

/** A limit for what is broken, never a wait. */
export const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 60_000)
/** Where the machine is busy the program leaks by fits and starts, and the detector wants to see more of it. */
export const VERDICT_MS = 4 * PATIENCE_MS
const LOOK_MS = 50

/** The first answer of `ask` that is not false, null or undefined. */
export async function until(what, ask, patience = PATIENCE_MS) {
  const end = Date.now() + patience
  let last
  do {
    try {
      const answer = await ask()
      if (answer !== false && answer != null) return answer
      last = undefined
    } catch (error) {
      last = error
    }
    await pause(LOOK_MS)
  } while (Date.now() < end)
  throw new Error(`never came: ${what}`, { cause: last })
}

// Whoever ends this test, by a signal or by a mistake in it, ends what it started.
const started = new Set()
process.on('exit', () => started.forEach((child) => child.kill('SIGKILL')))
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(1))

/** A port that the system does not give to others by itself, so that a restarted memoird finds it free again. */
export async function freePort() {
  return until('a free port', async () => {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    const server = createServer()
    const free = await new Promise((tell) => {
      server.once('error', () => tell(false))
      server.listen({ port, host: '127.0.0.1' }, () => tell(true))
    })
    if (free) await new Promise((closed) => server.close(closed))
    return free ? port : null
  })
}

/** A program whose output is kept. */
class Program {
  constructor(command, args, env) {
    this.text = ''
    this.ended = null
    this.child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'pipe'] })
    started.add(this.child)
    for (const stream of [this.child.stdout, this.child.stderr]) stream.on('data', (piece) => (this.text += piece))
    this.child.stdin.on('error', () => {}) // it may have ended
    this.child.on('error', (error) => (this.ended = `could not be started: ${error.message}`))
    this.child.on('exit', (code, signal) => {
      this.ended = signal ?? `status ${code}`
      started.delete(this.child)
    })
  }

  /** What a line of its output says. */
  async says(pattern) {
    return until(`${pattern} from ${this.child.spawnfile}; it said:\n${this.text}`, () => {
      const found = pattern.exec(this.text)
      if (!found && this.ended) throw new Error(`it ended (${this.ended}): ${this.text}`)
      return found
    })
  }

  async end(signal = 'SIGTERM') {
    if (this.ended === null) this.child.kill(signal)
    await until(`the end of ${this.child.spawnfile}`, () => this.ended)
  }
}

export class World {
  constructor() {
    this.books = mkdtempSync('/dev/shm/memoir-browser-')
    this.folder = mkdtempSync(join(tmpdir(), 'memoir-browser-'))
    this.state = join(this.folder, 'state')
    this.socket = join(this.folder, 'memoir.sock')
    this.env = { MEMOIR_DIR: this.books }
    this.programs = []
  }

  start(command, ...args) {
    const program = new Program(command, args, this.env)
    this.programs.push(program)
    return program
  }

  /** A restarted one has the same port, as a real one would. */
  async startDaemon(...more) {
    this.port ??= await freePort()
    this.daemon = this.start(
      MEMOIRD,
      ...['--dir', this.books, '--state', this.state, '--socket', this.socket, '--tt-socket', 'none'],
      ...['--http', `127.0.0.1:${this.port}`, '--leaks-interval', '100ms', '--history-flush', '1s'],
      ...more,
    )
    const [, url] = await this.daemon.says(/at (http:\/\/localhost:\d+)/)
    await this.daemon.says(/ready: watching/)
    this.url = url
  }

  startDemo() {
    this.demo = this.start(MEMOIR, 'demo', '--quiet', '--duration', '0', '--dir', this.books)
  }

  /** Its PID. Suspended, it counts nothing until somebody asks for it. */
  async startLeak(...options) {
    const sieve = this.start(MEMOIR, 'run', '--dir', this.books, '--quiet', ...options, SIEVE)
    const [, pid] = await sieve.says(/ready (\d+)/)
    return { pid: Number(pid), program: sieve }
  }

  /** A link that logs a browser in, once. */
  loginLink(...options) {
    const done = spawnSync(MEMOIR, ['open', '--print', '--socket', this.socket, ...options], {
      env: { ...process.env, ...this.env },
      encoding: 'utf8',
    })
    const link = /http:\S+/.exec(done.stdout ?? '')
    if (!link) throw new Error(`memoir open gave no link: ${done.stdout}${done.stderr}`)
    return link[0]
  }

  /** A token for this node, as its own user, that may act. */
  token() {
    const words = ['token', 'add', 'page', '--state', this.state, '--user', String(process.getuid()), '--role', 'control']
    const done = spawnSync(MEMOIR, words, { env: { ...process.env, ...this.env }, encoding: 'utf8' })
    if (done.status !== 0) throw new Error(`memoir token gave none: ${done.stderr}`)
    return done.stdout.trim()
  }

  audit() {
    return readFileSync(join(this.state, 'audit.jsonl'), 'utf8').trim().split('\n').map((line) => JSON.parse(line))
  }

  async end() {
    for (const program of this.programs.reverse()) await program.end().catch(() => program.end('SIGKILL'))
    rmSync(this.books, { recursive: true, force: true })
    rmSync(this.folder, { recursive: true, force: true })
  }
}
