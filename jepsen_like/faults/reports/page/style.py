"""The style of the page: quiet, readable on a phone, light or dark as the reader likes it."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f9; --ink: #1c2330; --soft: #5d6778; --rule: #dde1e8;
  --good: #1a7f4b; --bad: #c62f3b; --warn: #a86400;
  --first: #2b62c9; --second: #c77700; --third: #9aa3b2;
  --k0: #c2410c; --k1: #6d4bc3; --k2: #0f766e; --k3: #a3195b; --k4: #4d7c0f; --k5: #0369a1; --k6: #92620a;
  --k7: #64748b; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #12161d; --card: #1a2029; --ink: #e3e8f0; --soft: #98a3b5; --rule: #2c3542;
  --good: #4cc38a; --bad: #ff6b74; --warn: #f0b04a;
  --first: #7aa7ff; --second: #f0a848; --third: #66748a;
  --k0: #fb8b57; --k1: #ae97f5; --k2: #45c8bb; --k3: #f27fb4; --k4: #a3cf55; --k5: #56b6f0; --k6: #dfae55;
  --k7: #94a3b8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
header p { margin: .2rem 0; color: var(--soft); }
h1 { margin: 0; font-size: 1.7rem; line-height: 1.25; }
h2 { margin: 2.6rem 0 .6rem; font-size: 1.2rem; }
p, ul { margin: .5rem 0; max-width: 46rem; }
a { color: var(--first); }
code { font: .875em/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { margin: .8rem 0; padding: .6rem .8rem; background: var(--card); border-radius: 6px;
  white-space: pre-wrap; }
.badge { display: inline-block; padding: .1rem .7rem; border-radius: 1rem; border: 1px solid currentColor;
  font-weight: 600; font-size: 1rem; vertical-align: .2rem; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(14rem, 44%), 1fr)); gap: .7rem;
  margin: 1.4rem 0; padding: 0; list-style: none; max-width: none; }
.cards li { padding: .7rem .9rem; background: var(--card); border-radius: 8px; }
.cards strong { display: block; font-size: 1.35rem; font-weight: 600; line-height: 1.3; }
.cards span { color: var(--soft); font-size: .85rem; }
.wide { overflow-x: auto; -webkit-overflow-scrolling: touch; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .3rem; color: var(--soft); }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; vertical-align: bottom; }
td.text { white-space: normal; min-width: 18rem; }
thead tr { border-bottom: 1px solid var(--rule); }
tbody tr + tr { border-top: 1px solid var(--rule); }
.number { text-align: right; }
th.group { text-align: center; padding: 0 .9rem .1rem 0; }
th.group:not(:empty) { border-bottom: 1px solid var(--rule); }
.swatch { display: inline-block; width: .65rem; height: .65rem; margin-right: .45rem; border-radius: 2px;
  background: currentColor; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--soft); }
figure { margin: .5rem 0 0; } figcaption { color: var(--soft); font-size: .875rem; max-width: 46rem; }
svg { display: block; width: 100%; min-width: 58rem; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: currentColor; }
svg .tick, svg .legend { fill: var(--soft); } svg .title { font-weight: 600; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--rule); stroke-width: 1; }
.line { fill: none; stroke-width: 1.5; stroke: currentColor; stroke-linejoin: round; }
.area { fill: currentColor; opacity: .14; }
.first { color: var(--first); } .second { color: var(--second); } .third { color: var(--third); }
svg .key { fill: currentColor; }
.phase { fill: none; stroke: var(--rule); }
.phase.many { fill: var(--ink); fill-opacity: .12; } .phase.few { fill: var(--ink); fill-opacity: .05; }
.fault { fill: currentColor; } .band { fill: currentColor; opacity: .1; }
.kind-0 { color: var(--k0); } .kind-1 { color: var(--k1); } .kind-2 { color: var(--k2); }
.kind-3 { color: var(--k3); } .kind-4 { color: var(--k4); } .kind-5 { color: var(--k5); }
.kind-6 { color: var(--k6); } .kind-7 { color: var(--k7); }
@media print { body { max-width: none; } details > * { display: block; } }
"""
