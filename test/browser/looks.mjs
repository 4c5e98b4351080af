// For everybody: keyboard, screen readers (axe), dark, narrow; and nothing is fetched from anywhere else.
import assert from 'node:assert/strict'
import { assertAccessible, assertFits, picture, visit } from './browser.mjs'
import { until } from './world.mjs'

/** Name, address, and what is there when the view has its figures. */
const views = (pid) => [
  ['overview', 'overview', '.memory-now .big'],
  ['processes', 'processes', '.table .body .tr'],
  ['process-history', `process/${pid}`, '.chart .uplot'],
  ['process-heap', `process/${pid}?tab=heap`, '.icicle canvas'],
  ['process-sites', `process/${pid}?tab=sites`, '.table .body .tr'],
  ['process-ages', `process/${pid}?tab=ages`, 'table.heat td'],
  ['process-verdict', `process/${pid}?tab=leaks`, '.suspect'],
  ['devices', 'devices', '.device .space'],
  ['leaks', 'leaks', '.suspect'],
  ['containers', 'containers', 'h1'],
  ['self', 'self', '.facts dd'],
]

export function looksTests(scene, test) {
  for (const scheme of ['light', 'dark']) {
    test(`nobody is kept out of any screen, ${scheme}`, async () => {
      const { browser, page, world } = scene
      await page.emulateMedia({ colorScheme: scheme })
      for (const [name, place, sign] of views(scene.leak.pid)) {
        await visit(page, world.url, place)
        await page.locator(sign).first().waitFor()
        await assertAccessible(browser, page, `${name}, ${scheme}`)
        if (scheme === 'dark') await picture(page, `dark-${name}`)
      }
      const ink = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number))
      assert.equal(ink[0] + ink[1] + ink[2] < 380, scheme === 'dark', `the background is ${ink}`)
    })
  }

  test('every screen fits a telephone', async () => {
    const { browser, world } = scene
    const context = await browser.context({ viewport: { width: 390, height: 844 }, storageState: await scene.context.storageState() })
    const page = await browser.page(context, world.url)
    await visit(page, world.url, 'devices') // where links name devices by their identity
    const device = (await page.locator('.device a.space-name').first().getAttribute('href')).slice(2)
    for (const [name, place, sign] of [...views(scene.leak.pid), ['device', device, '.map canvas']]) {
      await visit(page, world.url, place)
      await page.locator(sign).first().waitFor()
      await assertFits(page, name)
      await picture(page, `narrow-${name}`)
    }
    await context.close()
  })

  test('everything can be reached by keyboard', async () => {
    const { page, world } = scene
    await page.emulateMedia({ colorScheme: 'light' })
    await visit(page, world.url, 'overview')
    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: 'Keys' }).waitFor()
    await picture(page, 'keys')
    await page.keyboard.press('Escape')
    await page.getByRole('dialog', { name: 'Keys' }).waitFor({ state: 'hidden' })
    for (const [key, title] of [['d', 'Devices'], ['l', 'Leaks'], ['p', 'Processes']]) {
      await page.keyboard.press('g')
      await page.keyboard.press(key)
      await page.getByRole('heading', { level: 1, name: title }).waitFor()
    }
    await page.locator('.table .body .tr').first().waitFor()
    await page.keyboard.press('/')
    await until('the filter has the focus', () => page.evaluate(() => document.activeElement.hasAttribute('data-filter')))
    await page.keyboard.type('program=sieve')
    await page.keyboard.press('Enter')
    await until('only sieve', async () => {
      const names = await page.locator('.table .body .tr .td:first-child').allInnerTexts()
      return names.length > 0 && names.every((name) => name.trim() === 'sieve')
    })
    await page.keyboard.press('Escape')
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { level: 1, name: 'sieve' }).waitFor()
  })

  test('the page asks nobody but its own memoird, and reports no error', () => {
    assert.deepEqual(scene.browser.foreign, [])
    assert.deepEqual(scene.browser.errors, [])
  })
}
