// A newcomer starts a service as the page says, and finds its leak from the page alone: which service, which line or whose heap, and
// where the megabytes of the process are.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { picture, textOf, visit } from './browser.mjs'
import { MEMOIR, until, VERDICT_MS } from './world.mjs'

const file = (name) => fileURLToPath(new URL(`newcomer/${name}`, import.meta.url))

async function start(world, ...command) {
  const program = world.start(MEMOIR, 'run', '--dir', world.books, '--quiet', ...command)
  const [, pid] = await program.says(/ready (\d+)/)
  return { pid: Number(pid), end: () => program.end() }
}

/** The row of the service on the screen of leaks, by what it is called and by its PID. */
async function suspect(page, world, pid, name) {
  await visit(page, world.url, 'leaks')
  const row = page.locator('.suspect', { hasText: name }).filter({ hasText: `(${pid})` }).first()
  await row.waitFor({ timeout: VERDICT_MS })
  return row
}

/** The parts of the bar sum to the RSS that the card tells, as far as what is shown is rounded. */
async function partsSum(page, world, pid) {
  await visit(page, world.url, `process/${pid}`)
  await page.locator('.explain .legend li').first().waitFor()
  const told = await page.evaluate(async (path) => (await fetch(path)).json(), `/api/v1/processes/${pid}/explain`)
  assert.equal(Object.values(told.kinds).reduce((sum, n) => sum + n, 0), told.rss)
  const widths = await page.locator('.explain .stack i').evaluateAll((parts) => parts.map((part) => parseFloat(part.style.width)))
  const sum = widths.reduce((all, width) => all + width, 0)
  assert.ok(Math.abs(sum - 100) < 0.1, `the bar is ${sum} % wide`)
  await page.locator('.explain-names li').first().waitFor()
}

export function newcomerTests(scene, test) {
  test('the leak of a Python service is found by its line, from the page alone', async () => {
    const { page, world } = scene
    const line = readFileSync(file('shop.py'), 'utf8').split('\n').findIndex((text) => text.includes('# LEAK')) + 1
    const service = await start(world, 'python3', file('shop.py'))
    const row = await suspect(page, world, service.pid, `shop.py:${line}`)
    await textOf(row.locator('.badge'), /Leak|Growing/)
    await until('one row for the line', async () => (await page.locator('.suspect', { hasText: `shop.py:${line}` }).count()) === 1)
    await partsSum(page, world, service.pid)
    await page.locator('.explain-names', { hasText: `shop.py:${line}` }).waitFor()
    await page.locator('.verdicts', { hasText: 'shop.py' }).waitFor()
    await picture(page, 'newcomer-python')
    await service.end()
  })

  test('the leak of a Java service is found in its heap, from the page alone', async (t) => {
    const { page, world } = scene
    if (spawnSync('javac', ['-version']).status !== 0) return t.skip('there is no javac')
    const service = await start(world, 'java', '-Xmx1g', file('Billing.java'))
    const row = await suspect(page, world, service.pid, 'Java heap')
    await textOf(row.locator('.badge'), /Growing/)
    await partsSum(page, world, service.pid)
    await page.locator('.verdicts', { hasText: 'Java heap' }).waitFor()
    await picture(page, 'newcomer-java')
    await service.end()
  })
}
