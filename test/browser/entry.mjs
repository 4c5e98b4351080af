// Getting in: refused without a login, let in by a link that works once.
import assert from 'node:assert/strict'
import { assertAccessible, picture } from './browser.mjs'

export function entryTests(scene, test) {
  test('without a login the page tells how to get in, and the API tells nothing', async () => {
    const { browser, world } = scene
    const context = await browser.context()
    const page = await browser.page(context, world.url)
    await page.goto(world.url)
    await page.getByText('memoir open').first().waitFor()
    await assertAccessible(browser, page, 'login')
    await picture(page, 'login')
    for (const path of ['/api/v1/processes', '/api/v1/self', '/api/v1/stream']) {
      const status = await page.evaluate(async (to) => (await fetch(to)).status, path)
      assert.equal(status, 401, path)
    }
    await page.getByLabel(/paste the code/).fill('AAAABBBBCCCCDDDD')
    await page.getByRole('button', { name: 'Log in' }).click()
    await page.getByRole('alert').waitFor()
    await context.close()
  })

  test('a link of memoir open lets a browser in, once', async () => {
    const { browser, world } = scene
    const link = world.loginLink()
    const context = await browser.context()
    const page = await browser.page(context, world.url)
    await page.goto(link)
    await page.getByRole('navigation', { name: 'Screens' }).waitFor()
    assert.equal(new URL(page.url()).search, '', 'the code is not left in the address')
    const cookies = await context.cookies()
    assert.ok(cookies.length > 0)
    for (const cookie of cookies) assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, 'Strict'], cookie.name)

    const other = await browser.context()
    const again = await browser.page(other, world.url)
    await again.goto(link)
    assert.equal((await other.cookies()).length, 0, 'a link that was used gives no session')
    await other.close()
    scene.context = context
    scene.page = page
  })
}
