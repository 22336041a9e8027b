"""How the page of the demo looks, beyond all pages."""

from __future__ import annotations

from wayfare.reports.figures import COLOURS

# of clients on a map, which is light in a dark page too
_ON_MAPS = {
    1: "#2f6f9f", 2: "#c8641a", 3: "#2f7d4c", 4: "#8a5aa8", 5: "#c1366f", 6: "#8f7a10", 7: "#1d8a90", 8: "#a3523d",
    10: "#4455b8", 11: "#6a9326",
}  # fmt: skip

STYLE = """
img{display:block;max-width:100%;height:auto}
.lead{max-width:66ch}
.banner{margin:0 0 18px}
.say{max-width:72ch}
section>h2{font-size:1.55rem;letter-spacing:-.012em;margin-bottom:8px}
section>h3{font-size:1.05rem;margin:26px 0 8px}
.cities{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,230px),1fr));gap:16px;margin:14px 0 6px}
.city figcaption{font-weight:400;font-size:.88rem;color:var(--muted);padding-top:6px}
.city figcaption b{color:var(--ink)}
.sheet{position:relative;border-radius:10px;overflow:hidden;border:1px solid var(--line)}
.sheet img{width:100%}
.sheet svg{position:absolute;inset:0;width:100%;height:100%}
.sheet circle{stroke:#fff;stroke-width:1.2;fill:#8a8f96}
.sheet circle.nobody,.sheet circle.index{fill:#6f757d;fill-opacity:.55;stroke:none}
.sheet .sights{font:600 25px system-ui,sans-serif;fill:#5a4a34;text-anchor:middle;paint-order:stroke;
stroke:#fff;stroke-width:6px;stroke-opacity:.75}
.large .sights{font-size:21px}
.sheet .map-pin circle{stroke:#fff;stroke-width:4}
.map-pin text{fill:#fff;font:700 30px system-ui,sans-serif;text-anchor:middle}
.sheet .truth{fill:none;stroke:#111;stroke-width:5}
.off{stroke:#111;stroke-width:4;stroke-dasharray:9 7;fill:none}
.pin1 circle{fill:#1f5f8f!important}.pin2 circle{fill:#a8471e!important}.pin3 circle{fill:#7a3f98!important}
.pin{display:inline-grid;place-items:center;width:26px;height:26px;border-radius:99px;color:#fff;font-weight:700;
font-size:.88rem}
.pin.pin1{background:#1f5f8f}.pin.pin2{background:#a8471e}.pin.pin3{background:#7a3f98}
.pinned{margin:0 0 6px}
.shots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(46%,150px),1fr));gap:12px}
.shots img,.lost{width:100%;border-radius:8px;background:var(--grid)}
.shots figcaption{font-weight:400;font-size:.84rem;color:var(--muted);padding-top:3px}
.found-shots{grid-template-columns:repeat(auto-fill,minmax(min(22%,104px),1fr));gap:12px 10px}
.found-shots img,.lost{aspect-ratio:1;object-fit:cover}
.lost{display:grid;place-items:center;color:var(--muted);font-size:.8rem}
.measure{color:var(--muted);margin:14px 0 8px;font-size:.95rem}
.race{margin:0 0 12px;display:grid;gap:7px;max-width:720px}
.runner{display:grid;grid-template-columns:8.2em 1fr;gap:10px;align-items:center}
.runner dt{font-size:.95rem}
.runner dd{margin:0;display:flex;gap:10px;align-items:center}
.runner b{font-variant-numeric:tabular-nums;min-width:2.9em;text-align:right;font-weight:500}
.runner.us dt,.runner.us b{font-weight:700}
.lane{flex:1;height:16px;border-radius:5px;background:var(--grid);overflow:hidden}
.us .lane{height:24px}
.fill{display:block;height:100%;border-radius:5px;min-width:2px}
.verdict{font-size:1.08rem;max-width:66ch;border-left:4px solid var(--accent);padding:2px 0 2px 14px;margin:16px 0}
.located{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,270px),1fr));gap:22px}
.two{display:grid;grid-template-columns:1fr 1fr;gap:8px;margin-bottom:8px}
.two img{width:100%;aspect-ratio:4/3;object-fit:cover;border-radius:8px;background:var(--grid)}
.two figcaption{font-weight:400;font-size:.82rem;color:var(--muted);padding-top:3px}
.card-located p{margin:0}
.card-located .pinned{margin:0 0 6px}
.beside-map{display:grid;grid-template-columns:minmax(0,1.1fr) minmax(0,1fr);gap:24px;align-items:center;
margin-top:20px}
.mark{display:inline-block;font-weight:700;color:var(--muted);margin-right:4px}
.mark.good{color:var(--good)}
.mark.bad{color:var(--warn)}
.relations{list-style:none;margin:14px 0 0;padding:0;columns:16em auto;column-gap:28px}
.relations li{padding:2px 0;break-inside:avoid}
.pair .shot img{width:100%;max-width:560px;image-rendering:auto}
.both{display:grid;gap:10px;grid-template-columns:1fr 1.6fr;align-items:end}
.both img{width:100%;border-radius:8px}
#tour-map{max-height:560px}
.links{margin:14px 0 0}
pre span{display:block}
.plain-list li{margin-bottom:4px}
@media (prefers-color-scheme:dark){.sheet img{filter:brightness(.82)}}
@media (max-width:760px){.beside-map{grid-template-columns:1fr;gap:14px}}
@media (max-width:560px){.runner{grid-template-columns:1fr;gap:2px}.found-shots{grid-template-columns:repeat(4,1fr)}
.both{grid-template-columns:1fr}
section>h2{font-size:1.35rem}.tile:first-child{grid-column:auto}.cities .sights{display:none}
.cities circle{r:8px}.cities{grid-template-columns:1fr 1fr;gap:12px}}
""" + "".join(f".fill.c{i}{{background:var(--c{i})}}\n" for i in range(1, COLOURS + 1))
STYLE += "".join(f".sheet circle.c{i}{{fill:{colour}}}\n" for i, colour in _ON_MAPS.items())
