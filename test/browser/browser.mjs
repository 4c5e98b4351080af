// A real browser, and what every test of the page wants from it: no error on its console, no request to anybody else,
// pictures to look at, and axe's opinion.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { BUILD, PATIENCE_MS, until } from './world.mjs'

const modules = createRequire(new URL('../../web/package.json', import.meta.url))
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium'
const PICTURES = join(BUILD, 'screenshots')

/** Why there can be no test, or null. */
export function missing() {
  if (!existsSync(CHROMIUM)) return 'chromium is not installed'
  if (!existsSync(new URL('../../web/node_modules/playwright-core/package.json', import.meta.url)))
    return 'playwright-core is not there: npm ci in web/'
  return null
}

export class Browser {
  async start() {
    mkdirSync(PICTURES, { recursive: true })
    const { chromium } = modules('playwright-core')
    // Tests run as root in containers: without its sandbox, and without the little shared memory that there is.
    this.chromium = await chromium.launch({
      executablePath: CHROMIUM,
      args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
    })
    this.axe = readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8')
    this.foreign = []
    this.errors = []
  }

  /** Pages of their own, with their own login. */
  async context(options = {}) {
    const context = await this.chromium.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: 'reduce', ...options })
    context.setDefaultTimeout(PATIENCE_MS)
    return context
  }

  async page(context, url) {
    const page = await context.newPage()
    const origin = new URL(url).origin
    page.on('request', (request) => {
      const to = request.url()
      if (!to.startsWith(origin) && !to.startsWith('data:')) this.foreign.push(to)
    })
    page.on('pageerror', (error) => this.errors.push(String(error.stack ?? error)))
    page.on('console', (message) => {
      // A refused request is told by the browser itself; what the page makes of it is what tests look at.
      if (message.type() === 'error' && !/Failed to load resource|ERR_/.test(message.text())) this.errors.push(message.text())
    })
    return page
  }

  async end() {
    await this.chromium?.close()
  }
}

export async function picture(page, name) {
  await page.screenshot({ path: join(PICTURES, `${name}.png`) })
}

/** Go to a view of the page by its address, as a link would. */
export async function visit(page, url, place) {
  await page.goto(`${url}/#/${place}`)
  await page.getByText('live', { exact: true }).first().waitFor()
}

/** Violations that keep people out. */
export async function assertAccessible(browser, page, name) {
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(browser.axe)
  const found = await page.evaluate(() =>
    globalThis.axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }),
  )
  const bad = found.violations.filter((one) => ['serious', 'critical'].includes(one.impact))
  const told = bad.map((one) => `${one.id}: ${one.help}\n  ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).slice(0, 4).join('\n  ')}`)
  assert.deepEqual(told, [], `${name} keeps people out`)
}

/** Nothing sticks out to the right: neither the page nor what is in it scrolls sideways, but for wide tables in their boxes. */
export async function assertFits(page, name) {
  const over = await page.evaluate(() => {
    const main = document.getElementById('main')
    return Math.max(document.scrollingElement.scrollWidth - innerWidth, main.scrollWidth - main.clientWidth)
  })
  assert.ok(over <= 0, `${name} is ${over} px wider than the screen`)
}

/** The text of an element once it is as wanted. */
export const textOf = (locator, pattern, patience = PATIENCE_MS) =>
  until(
    `${pattern}`,
    async () => {
      const text = await locator.first().innerText({ timeout: 1000 })
      return pattern.test(text) ? text : null
    },
    patience,
  )
