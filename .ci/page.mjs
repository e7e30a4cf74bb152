// Uses the page of `nugget export --format html` in a real browser: `node page.mjs MODULES BROWSER PAGE [SCREENSHOTS]`,
// where MODULES holds the npm package `playwright-core`, and BROWSER is a Chromium.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, executablePath, page_file, screenshots] = process.argv.slice(2);
const { chromium } = createRequire(resolve(modules, 'index.js'))('playwright-core');
const url = pathToFileURL(resolve(page_file)).href;
const args = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];
const browser = await chromium.launch({ executablePath, args });

/** Labels that lie on each other, or outside of the graph. */
const misplaced = () => {
  const { clientWidth, clientHeight } = document.getElementById('graph');
  const outside = labels.filter((a) => a.left < 0 || a.top < 0 || a.right > clientWidth || a.bottom > clientHeight);
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const pairs = labels.flatMap((a, at) => labels.slice(at + 1).filter((b) => meet(a, b)).map((b) => [a, b]));
  return { count: labels.length, outside, pairs };
};

for (const width of [360, 768, 1280]) {
  for (const colorScheme of ['light', 'dark']) {
    const about = (what) => `${width} px, ${colorScheme}: ${what}`;
    const context = await browser.newContext({ viewport: { width, height: width < 700 ? 740 : 800 }, colorScheme });
    const page = await context.newPage();
    const problems = [];
    page.on('pageerror', (error) => problems.push(String(error)));
    page.on('request', (request) => request.url() !== url && problems.push(`it requests ${request.url()}`));
    await page.goto(url);
    const shoot = (name) => screenshots && page.screenshot({ path: join(screenshots, `${width}-${colorScheme}-${name}.png`) });
    const titles = () => page.$$eval('#list button', (buttons) => buttons.map((button) => button.firstChild.textContent));
    const chosen = () => page.$eval('#unit h2', (title) => title.textContent);
    const search = (words) => page.fill('#search', words);

    const { overflow, list, background, ink } = await page.evaluate(() => ({
      overflow: document.documentElement.scrollWidth - innerWidth,
      list: document.getElementById('list').getBoundingClientRect(),
      background: getComputedStyle(document.body).backgroundColor,
      ink: getComputedStyle(document.body).color,
    }));
    assert.ok(overflow <= 0, about(`it scrolls sideways by ${overflow} px`));
    assert.ok(list.width >= 240 && list.height >= 200, about(`the list is ${list.width} x ${list.height} px`));
    const brightness = (colour) => colour.match(/\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3;
    assert.ok(brightness(background) > 128 === (colorScheme === 'light'), about(`the background is ${background}`));
    assert.ok(Math.abs(brightness(background) - brightness(ink)) > 128, about(`${ink} on ${background}`));
    await shoot('list');

    // A word is found in its other forms, and letters within a word as before.
    const every = await titles();
    assert.ok(every.length > 10, about(`${every.length} units`));
    for (const [words, title] of [
      ['retrying', /retr(y|ies)/i], ['RETRY', /retr(y|ies)/i], ['idempotent keys', /idempoten/i], ['idempot', /idempoten/i],
    ]) {
      await search(words);
      const found = await titles();
      assert.ok(found.length > 0 && found.length < every.length && found.some((one) => title.test(one)), about(`${words} finds ${found}`));
    }
    await search('zzzznothing');
    assert.deepEqual(await titles(), [], about('nothing is found'));
    await search('');

    // Arrow keys go through the list, and the focus with them.
    await page.focus('#search');
    for (const [key, at] of [['ArrowDown', 0], ['ArrowDown', 1], ['ArrowDown', 2], ['ArrowUp', 1], ['End', every.length - 1], ['Home', 0]]) {
      await page.keyboard.press(key);
      assert.equal(await chosen(), every[at], about(`${key} leads to number ${at}`));
      assert.equal(await page.evaluate(() => document.activeElement.firstChild.textContent), every[at], about(`${key}: the focus`));
    }
    await shoot('unit');

    // Orders.
    await page.selectOption('#sort', 'title');
    const by_title = await titles();
    assert.deepEqual(by_title, [...by_title].sort((a, b) => a.localeCompare(b)), about('by title'));
    const details = () => page.$$eval('#list small', (lines) => lines.map((line) => line.textContent.split(' · ')));
    await page.selectOption('#sort', 'type');
    const types = (await details()).map(([type]) => type);
    assert.deepEqual(types, [...types].sort(), about('by type'));
    await page.selectOption('#sort', 'date');
    const days = (await details()).map((parts) => parts[2]);
    assert.ok(days.every((day) => /^\d{4}-\d\d-\d\d$/.test(day)), about(`a unit has a date: ${days}`));
    assert.deepEqual(days, [...days].sort().reverse(), about('newest first'));

    // Labels in the graph: of the domains, and of a unit with its neighbours.
    if (await page.$eval('#graph', (graph) => graph.hidden)) await page.click('#show');
    await page.waitForFunction(() => heat < 0.15);
    const neighbours = await page.evaluate(() => Math.max(...units.map((unit) => unit.near.size)));
    assert.ok(neighbours >= 2, about('units are related'));
    for (const what of ['unit', 'domains']) {
      await page.evaluate((what) => {
        const best = units.reduce((a, b) => (b.near.size > a.near.size ? b : a));
        if (what === 'unit') return choose(best);
        chosen = null;
        draw();
      }, what);
      const { count, outside, pairs } = await page.evaluate(misplaced);
      assert.ok(count >= 2, about(`${count} labels of ${what}`));
      assert.deepEqual([outside, pairs], [[], []], about(`labels of ${what}`));
      await shoot(`graph-${what}`);
    }
    const boxes = await page.evaluate(() => {
      const [graph, unit] = ['graph', 'unit'].map((id) => document.getElementById(id).getBoundingClientRect());
      return { graph, unit, overflow: document.documentElement.scrollWidth - innerWidth, bottom: innerHeight };
    });
    assert.ok(boxes.overflow <= 0, about(`with the graph it scrolls sideways by ${boxes.overflow} px`));
    assert.ok(boxes.graph.height >= 120 && boxes.graph.bottom <= boxes.unit.top + 1, about(`the graph: ${JSON.stringify(boxes)}`));
    assert.ok(boxes.unit.height >= 120 && boxes.unit.bottom <= boxes.bottom + 1, about(`the unit: ${JSON.stringify(boxes)}`));
    assert.deepEqual(problems, [], about('problems'));
    await context.close();
  }
}
await browser.close();
console.log('the page works at 360, 768 and 1280 px in both colour schemes');
