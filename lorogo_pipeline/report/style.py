"""The style sheet of the report: light and dark, wide and narrow, and print."""

# ruff: noqa: E501 - related rules share a line

STYLE = """
:root{color-scheme:light dark;--bg:#f5f6f8;--card:#fff;--ink:#18212d;--muted:#5a6878;--line:#e4e8ed;--soft:#eef1f5;
--c1:#3667d6;--c2:#0f9d8a;--c3:#e8912d;--c4:#d13c6f;--c5:#8650c9;--c6:#2a9fc9;--c7:#a9772c;--c8:#8593a5;
--good:#0f8a5f;--warn:#a35c00;--warn-bg:#fff6e5;--warn-line:#f1d9a9;--bad:#b3261e;--bad-bg:#fdeeed;--bad-line:#f3c6c2}
@media(prefers-color-scheme:dark){:root{--bg:#0e131a;--card:#161d26;--ink:#e7ecf3;--muted:#98a6b8;--line:#27313d;
--soft:#1f2833;--c1:#7aa2ff;--c2:#3ccbb6;--c3:#f6b15c;--c4:#f57ba3;--c5:#b892f0;--c6:#62c6ea;--c7:#d3a562;--c8:#7d8b9d;
--good:#4fd1a1;--warn:#f3bd66;--warn-bg:#2a2113;--warn-line:#4d3c1c;--bad:#ff9a92;--bad-bg:#2d1817;--bad-line:#5a2b28}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 Inter,system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%;font-variant-numeric:tabular-nums}
main,header,footer{max-width:1180px;margin:0 auto;padding:0 24px}
header{padding-top:40px;padding-bottom:8px}
h1{font-size:30px;line-height:1.2;letter-spacing:-.02em;margin:0 0 4px}
h2{font-size:20px;letter-spacing:-.01em;margin:44px 0 4px}
h3{font-size:14px;font-weight:600;margin:0}
p{margin:0}
.eyebrow{font-size:12px;font-weight:600;letter-spacing:.08em;text-transform:uppercase;color:var(--c1);margin-bottom:6px}
.lead{font-size:17px;color:var(--muted)}
.about{display:flex;flex-wrap:wrap;gap:2px 20px;margin-top:12px;font-size:13px;color:var(--muted)}
.about b{color:var(--ink);font-weight:500}
.why{color:var(--muted);max-width:74ch;margin-bottom:16px}
.grid{display:grid;gap:16px;grid-template-columns:repeat(12,minmax(0,1fr))}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 20px;grid-column:span 12;min-width:0}
.stack{display:flex;flex-direction:column;gap:16px;min-width:0}.stack>.card{flex:1}
.whole{grid-column:span 12}.half{grid-column:span 6}.third{grid-column:span 4}
.card>p.note{color:var(--muted);font-size:13px;margin:2px 0 10px}
.tiles{display:grid;gap:16px;grid-template-columns:repeat(6,minmax(0,1fr));margin-top:24px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 16px 0;overflow:hidden;
display:flex;flex-direction:column}
.tile .what{font-size:13px;color:var(--muted)}
.tile .number{font-size:27px;font-weight:600;letter-spacing:-.02em;line-height:1.25;white-space:nowrap}
.tile .beside{font-size:12.5px;color:var(--muted);min-height:2.9em;line-height:1.4}
.tile .spark{margin:auto -16px 0;width:calc(100% + 32px)}
.notice{border:1px solid var(--warn-line);background:var(--warn-bg);border-radius:12px;padding:12px 18px;margin-top:16px}
.notice.bad{border-color:var(--bad-line);background:var(--bad-bg)}
.notice h3{color:var(--warn)}.notice.bad h3{color:var(--bad)}
.notice ul{margin:4px 0 0;padding-left:20px}.notice li{margin:3px 0}
.fine{margin-top:16px;color:var(--muted);font-size:14px}
.fine b{color:var(--good);font-weight:600}
.plot{padding-left:58px;margin-top:6px}
.plot.days{padding-left:40px}
svg{display:block;overflow:visible}
.third text.tick.other{display:none}
svg.spark,svg.meter{overflow:hidden}
.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}
.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}.c8{--c:var(--c8)}
rect,circle{fill:var(--c)}
rect.none{fill:var(--soft)}
rect.hit{fill:var(--ink);fill-opacity:0}
rect.hit:hover,.place:hover>rect.hit{fill-opacity:.06}
.part>rect:not(.hit){fill-opacity:.5}
path.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
path.area{fill:var(--c);fill-opacity:.13}
.chart line.grid{stroke:var(--line)}line.floor{stroke:var(--muted);stroke-opacity:.55}
text{fill:var(--ink);font-size:13px}
text.tick{fill:var(--muted);font-size:11.5px}
text.value{fill:var(--muted)}
text.name,.id{font-family:ui-monospace,"SF Mono","JetBrains Mono",Menlo,Consolas,monospace;font-size:12.5px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;color:var(--muted);margin:4px 0 2px}
.legend span{display:inline-flex;align-items:center;gap:6px}
.legend i{width:10px;height:10px;border-radius:3px;background:var(--c);flex:none}
table{border-collapse:collapse;width:100%;font-size:14px}
th{font-weight:500;color:var(--muted);font-size:12.5px;text-align:left;padding:4px 12px 6px 0;border-bottom:1px solid var(--line)}
td{padding:7px 12px 7px 0;border-bottom:1px solid var(--line);vertical-align:middle}
tr:last-child td{border-bottom:0}
th.n,td.n{text-align:right;white-space:nowrap}th:last-child,td:last-child{padding-right:0}
td.id{overflow-wrap:anywhere;min-width:9em}
td.bar{width:22%;min-width:64px}.reasons td.bar{width:14%}.reasons td.id{min-width:13em}
.tag{font:500 11px/1.6 system-ui,sans-serif;color:var(--muted);border:1px solid var(--line);border-radius:6px;padding:0 6px;
margin-left:6px;white-space:nowrap}
.scroll{overflow-x:auto}
details{margin-top:10px;font-size:13px}
summary{color:var(--muted);cursor:pointer;width:max-content}
details .scroll{max-height:320px;overflow:auto;margin-top:8px;border:1px solid var(--line);border-radius:8px;padding:4px 12px}
details table{font-size:12.5px}details td{padding-top:3px;padding-bottom:3px}
code,pre{font-family:ui-monospace,"SF Mono","JetBrains Mono",Menlo,Consolas,monospace;font-size:13px}
pre{background:var(--soft);border-radius:8px;padding:12px 14px;overflow-x:auto;margin:8px 0 16px}
.first{margin-top:24px}
.empty{color:var(--muted);font-size:14px;padding:18px 0 10px}
ol{padding-left:22px}ol li{margin:4px 0}
footer{padding-top:36px;padding-bottom:48px;color:var(--muted);font-size:13px}
footer p{max-width:90ch;margin-bottom:8px}
@media(max-width:1000px){.tiles{grid-template-columns:repeat(3,minmax(0,1fr))}.third{grid-column:span 12}}
@media(max-width:760px){main,header,footer{padding-left:14px;padding-right:14px}header{padding-top:24px}h1{font-size:25px}
.half{grid-column:span 12}.tiles{grid-template-columns:repeat(2,minmax(0,1fr));gap:10px}.grid{gap:10px}.card{padding:14px}
.tile .number{font-size:23px}.plot{padding-left:52px}text.tick.other{display:none}td.far,th.far{display:none}.reasons td.id{min-width:8.5em}h2{margin-top:34px}}
@media print{body{background:#fff}.card,.tile,.notice{break-inside:avoid}details{display:none}}
"""
