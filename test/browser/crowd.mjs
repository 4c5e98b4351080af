// A machine with 10,000 processes: the answer is made up here, all that shows it is real.
import assert from 'node:assert/strict'
import { picture } from './browser.mjs'
import { until } from './world.mjs'

const ROWS = 10_000

/** The answer of memoird with its first row again and again, each with a PID and a size of its own. */
function crowd(answer) {
  const at = (name) => answer.columns.findIndex((column) => column.name === name)
  const [pid, program, rss] = ['pid', 'program', 'rss'].map(at)
  const rows = Array.from({ length: ROWS }, (_, i) => {
    const row = [...answer.rows[0]]
    row[pid] = 100_000 + i
    row[program] = `worker-${i}`
    row[rss] = (ROWS - i) * 1_000_000
    return row
  })
  return { ...answer, rows, matched: ROWS, estimate: [], at_least: [] }
}

export function crowdTests(scene, test) {
  test('10,000 processes are painted at once and scrolled to the last', async (t) => {
    const { browser, world } = scene
    const page = await browser.page(scene.context, world.url)
    await page.route('**/api/v1/processes?*', async (route) => {
      const response = await route.fetch()
      if (response.status() !== 200) return route.fulfill({ response })
      return route.fulfill({ json: crowd(await response.json()) })
    })
    const answered = page.waitForResponse('**/api/v1/processes?*')
    await page.goto(`${world.url}/#/processes`)
    await answered
    const table = page.getByRole('table', { name: 'processes', exact: true })
    await page.getByText('worker-0', { exact: true }).waitFor()
    const paint = await page.evaluate(() => {
      const first = performance.getEntriesByName('first-contentful-paint')[0]
      const answer = performance.getEntriesByType('resource').find((entry) => entry.name.includes('/api/v1/processes?'))
      return { first: first?.startTime, answered: answer?.responseEnd, rows: performance.now() }
    })
    t.diagnostic(`first paint after ${Math.round(paint.first)} ms; ${ROWS} rows answered after ${Math.round(paint.answered)} ms, seen by the test after ${Math.round(paint.rows)} ms`)
    await picture(page, 'processes-10000')

    assert.ok((await table.locator('.body .tr').count()) < 200, 'only the rows in sight are in the document')
    const last = page.getByText(`worker-${ROWS - 1}`, { exact: true })
    await until('the last row', async () => {
      await table.evaluate((box) => (box.scrollTop = box.scrollHeight))
      return last.isVisible()
    })
    await picture(page, 'processes-10000-end')
    await page.getByRole('button', { name: /^RSS/i }).click()
    await until('the smallest first', async () => {
      await table.evaluate((box) => (box.scrollTop = 0))
      return last.isVisible()
    })
    await page.close()
  })
}
