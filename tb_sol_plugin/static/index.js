// node_modules/preact/dist/preact.mjs
var n$1;
var t$2;
var r$2;
var u$3;
var i$2;
var f$3;
var o$3;
var e$2;
var l$2;
var c$2;
var a$3;
var h$3 = Symbol.for("pv");
var p$3 = {};
var y$3 = [];
var v$2 = /^m(i|n|o|s|text|space)$/;
var w$3 = Array.isArray;
var d$3 = y$3.slice;
var _$3 = Object.assign;
function g$3(n) {
	n && n.parentNode && n.remove();
}
function k$2(n, t, r) {
	var u, i, f, o = {}, e = arguments.length;
	for (f in t) "key" == f ? u = t[f] : "ref" == f && "function" != typeof n ? i = t[f] : o[f] = t[f];
	return e > 2 && (o.children = e > 3 ? d$3.call(arguments, 2) : r), m$3(n, o, u, i, null);
}
function m$3(r, u, i, f, o) {
	var e = {
		type: r,
		props: u,
		key: i,
		ref: f,
		__k: null,
		__: null,
		__b: 0,
		__e: null,
		__c: null,
		constructor: h$3,
		__v: o || ++t$2,
		__i: -1,
		__u: 0
	};
	return !o && n$1.vnode && n$1.vnode(e), e;
}
function $(n) {
	return n.children;
}
function x$2(n, t) {
	this.props = n, this.context = t, this.__g = 0;
}
function S$1(n, t) {
	if (null == t) return n.__ && S$1(n.__, n.__i + 1);
	for (var r; t < n.__k.length; t++) if ((r = n.__k[t]) && r.__e) return r.__e;
	return "function" != typeof n.type || n.props.__P ? null : S$1(n);
}
function C$1(t) {
	var r, u = t.__v, i = u.__e, f = [], o = [], e = t.__P;
	e && ((r = _$3({ constructor: h$3 }, u)).__v = u.__v + 1, n$1.vnode && n$1.vnode(r), z$1(e, r, u, t.__n, e.namespaceURI, 32 & u.__u ? [i] : null, f, i || S$1(u), 32 & u.__u, o), r.__v = u.__v, r.__.__k[r.__i] = r, E$1(f, r, o), u.__ = u.__e = null, r.__e != i && j$1(r));
}
function j$1(n) {
	if ((n = n.__) && n.__c && !n.props.__P) return n.__e = null, n.__k.some(function(t) {
		return t && (n.__e = t.__e);
	}), j$1(n);
}
function L(t) {
	(8 & t.__g || (t.__g |= 8, u$3.push(t), f$3++)) && i$2 == n$1.debounceRendering || ((i$2 = n$1.debounceRendering) || queueMicrotask)(H);
}
function H() {
	try {
		for (var n, t = 1; u$3.length;) u$3.length > t && u$3.sort(o$3), n = u$3.shift(), t = u$3.length, 8 & n.__g && C$1(n);
	} finally {
		(f$3 = u$3.length) && (i$2 || queueMicrotask)(H);
	}
}
function I(n, t, r, u, i, f, o, e, l, c, a) {
	var s, h, v, w, d, _, g = u.__k || y$3, k = t.length;
	for (l = q$1(r, t, g, l, k), s = 0; s < k; s++) null != (v = r.__k[s]) && (h = ~v.__i && g[v.__i] || p$3, v.__i = s, _ = z$1(n, v, h, i, f, o, e, l, c, a), w = v.__e, (h.ref != v.ref || 8 & h.__u) && (h.ref && G$1(h.ref, null, v, h), v.ref && a.push(v.ref, v.__c || w, v)), d = d || w, 4 & v.__u ? (l = A$2(v, l, n, !h.__v), h.__e && (h.__e = null)) : "function" == typeof v.type && void 0 !== _ ? l = _ : w && (l = w.nextSibling), v.__u &= -21);
	return r.__e = d, l;
}
function q$1(n, t, r, u, i) {
	var f, o, e, l, c, a, s, p, y, v = r.length, d = v, _ = 0, g = 0, k = n.__k = Array(i);
	for (f = 0; f < i; f++) null != (o = t[f]) && "boolean" != typeof o && "function" != typeof o ? ("object" != typeof o || o.constructor === String ? o = k[f] = m$3(null, o) : w$3(o) ? o = k[f] = m$3($, { children: o }) : o.constructor === h$3 && o.__b ? o = k[f] = m$3(o.type, o.props, o.key, o.ref, o.__v) : k[f] = o, l = f + _, o.__ = n, o.__b = n.__b + 1, e = null, ~(c = o.__i = P(o, r, l, d)) && (d--, (e = r[c]) && (e.__u |= 2)), e && e.__v ? (o.__u |= 16, c == l - 1 ? _-- : c == l + 1 ? _++ : c != l && (c > l ? _-- : _++, g = 1)) : (~c || (i > v ? _-- : i < v && _++), "function" != typeof o.type && (o.__u |= 4))) : k[f] = null;
	if (g) {
		for (a = [], s = [], f = 0; f < i; f++) if ((o = k[f]) && 16 & o.__u) {
			for (_ = 0, p = a.length; _ < p;) a[y = _ + p >> 1] < o.__i ? _ = y + 1 : p = y;
			a[_] = o.__i, s[f] = _ + 1;
		}
		for (_ = a.length; f--;) s[f] && (s[f] == _ ? _-- : k[f].__u |= 4);
	}
	if (d) for (f = 0; f < v; f++) !(e = r[f]) || 2 & e.__u || (e.__e == u && (u = S$1(e)), J(e, e));
	return u;
}
function A$2(n, t, r, u) {
	var i, f, o, e;
	if ("function" == typeof n.type) {
		if (n.props.__P) return t;
		if (i = n.__k) for (f = 0; f < i.length; f++) i[f] && (i[f].__ = n, t = A$2(i[f], t, r, !1));
		return t;
	}
	for (t && !t.parentNode && (t = S$1(n)) && !t.parentNode && (t = null), o = n.__e, e = t; e && 8 == e.nodeType;) e = e.nextSibling;
	for (o != e && (!u && r.moveBefore && o.parentNode ? r.moveBefore(o, t) : r.insertBefore(o, t || null)), t = o; (t = t && t.nextSibling) && 8 == t.nodeType && !t.data.startsWith("$s"););
	return t;
}
function P(n, t, r, u) {
	var i, f = n.key, o = n.type, e = t[r], l = e && !(2 & e.__u);
	if (null === e && null == f || l && f == e.key && o == e.type) return r;
	if (u > (l ? 1 : 0)) {
		for (i = r - 1; i >= 0; i--) if ((e = t[i]) && !(2 & e.__u) && f == e.key && o == e.type) return i;
		for (i = r + 1; i < t.length; i++) if ((e = t[i]) && !(2 & e.__u) && f == e.key && o == e.type) return i;
	}
	return -1;
}
function T$2(n, t, r) {
	r ??= "", "-" == t[0] ? n.setProperty(t, r) : n[t] = r;
}
function N(n, t, r, u, i) {
	var f, o;
	if ("style" == t) if ("string" == typeof r) n.style.cssText = r;
	else {
		if ("string" == typeof u && (n.style.cssText = u = ""), u) for (t in u) r && t in r || T$2(n.style, t);
		if (r) for (t in r) u && r[t] == u[t] || T$2(n.style, t, r[t]);
	}
	else if ("o" == t[0] && "n" == t[1]) "function" != typeof r && (r = null), "function" != typeof u && (u = null), (n.__e || (n.__e = {}))[t] = r, r && u || (o = a$3[t] || (a$3[t] = V(t)), (n.__a || (n.__a = {}))[t] = c$2, f = t != (t = t.replace(l$2, "$1")), (t = t.slice(2))[0] < "a" && (t = t.toLowerCase()), r ? n.addEventListener(t, o, f) : n.removeEventListener(t, o, f));
	else {
		if ("http://www.w3.org/2000/svg" == i) t = t.replace(/xlink(H|:h)/, "h").replace(/sName$/, "s");
		else if ("width" != t && "height" != t && "href" != t && "list" != t && "form" != t && "tabIndex" != t && "download" != t && "rowSpan" != t && "colSpan" != t && "role" != t && "popover" != t && t in n) try {
			n[t] = null == r ? "" : r;
			return;
		} catch (n) {}
		if ("function" == typeof r) return;
		null == r || !1 === r && "-" != t[4] ? n.removeAttribute(t) : n.setAttribute(t, "popover" == t && 1 == r ? "" : r);
	}
}
function V(t) {
	return function(r) {
		var u = this.__e;
		if (u) {
			if (u = u[t], null == r[e$2]) r[e$2] = c$2++;
			else if (r[e$2] < this.__a[t]) return;
			return u(n$1.event ? n$1.event(r) : r);
		}
	};
}
function z$1(t, r, u, i, f, o, e, l, c, a) {
	var s, p, v, d, k, b, m, M, C, j, L, H, q, A, O, P, T, N, V = r.type;
	if (r.constructor !== h$3) return null;
	128 & u.__u && (c = 32 & u.__u, s = u.__c.__z) && (r.__u |= c, p = o = [], 8 == s.nodeType ? l = B$1(s, o) : o.push(s), l = o[0] || l), (s = n$1.__b) && s(r);
	n: if ("function" == typeof V) {
		v = e.length;
		try {
			if (M = r.props, C = (s = V.prototype) && s.render, j = (s = V.contextType) && i[s.__c], L = s ? j ? j.props.value : s.__ : i, (d = u.__c) ? (r.__c = d, 2 & d.__g && (d.__g |= 1)) : (C ? r.__c = d = new V(M, L) : (r.__c = d = new x$2(M, L), d.constructor = V, d.render = K), j && j.sub(d), d.state || (d.state = {}), d.__n = i, d.__g |= 8, d.__h = [], d.__k = []), C && (d.__s || (d.__s = d.state), V.getDerivedStateFromProps && (d.__s == d.state && (d.__s = _$3({}, d.__s)), _$3(d.__s, V.getDerivedStateFromProps(M, d.__s)))), k = d.props, b = d.state, d.__v = r, u.__c) {
				if (M !== k && C && !V.getDerivedStateFromProps && d.componentWillReceiveProps && d.componentWillReceiveProps(M, L), r.__v == u.__v && !(8 & d.__g) || !(4 & d.__g) && d.shouldComponentUpdate && !1 === d.shouldComponentUpdate(M, d.__s, L)) {
					r.__v != u.__v && (d.props = M, d.state = d.__s, d.__g &= -9), r.__e = u.__e, r.__k = u.__k, r.__k.some(function(n) {
						n && (n.__ = r);
					}), y$3.push.apply(d.__h, d.__k), d.__k = [], d.__h.length && e.push(d), l = S$1(u);
					break n;
				}
				d.componentWillUpdate && d.componentWillUpdate(M, d.__s, L), C && d.componentDidUpdate && d.__h.push(function() {
					d.componentDidUpdate(k, b, m);
				});
			} else C && !V.getDerivedStateFromProps && d.componentWillMount && d.componentWillMount(), C && d.componentDidMount && d.__h.push(d.componentDidMount);
			d.context = L, d.props = M, d.__P = t, d.__g &= -5, H = n$1.__r, q = C ? 25 : 0;
			do
				d.__g &= -9, H && H(r), s = d.render(d.props, d.state = d.__s, d.context);
			while (8 & d.__g && ++q < 25);
			C && (y$3.push.apply(d.__h, d.__k), d.__k = []), d.state = d.__s, d.getChildContext && (i = _$3({}, i, d.getChildContext())), C && u.__c && d.getSnapshotBeforeUpdate && (m = d.getSnapshotBeforeUpdate(k, b)), A = s && s.type === $ && null == s.key ? s.props.children : s, M.__P && (s = l, f = (t = M.__P).namespaceURI, c = o = null, u.props && u.props.__P != t && (u.__k.some(function(n) {
				n && J(n, n);
			}), u.__k = null), l = u.__k ? S$1(u, 0) : null), l = I(t, w$3(A) ? A : [A], r, u, i, f, o, e, l, c, a), M.__P && (r.__e = null, l = s), r.__u &= -161, p && p.some(g$3), d.__h.length && e.push(d), 1 & d.__g && (d.__g &= -4);
		} catch (t) {
			if (e.length = v, r.__v = null, c || o) if (t && t.then) {
				if (r.__u |= 128 | c, o) {
					for (~(T = o.indexOf(l || void 0)) || (T = o.length); (N = o[T - 1]) && 8 == N.nodeType;) T--;
					for (; T < o.length; T++) if (N = o[T]) if (o[T] = null, O) {
						if (N == P) break;
					} else {
						if (8 != N.nodeType) break;
						N.data.startsWith("$s") && (P = B$1(O = N));
					}
				}
				if (!O) {
					for (; l && 8 == l.nodeType && l.nextSibling;) l = l.nextSibling;
					O = l;
				}
				(s = B$1(O = r.__c.__z || (r.__c.__z = O))) ? (r.__e = O, l = s) : r.__e = l, l = l && l.nextSibling;
			} else o && o.some(g$3);
			else r.__e = u.__e;
			r.__k || (r.__k = u.__k || []), t && t.then || D$1(r), n$1.__e(t, r, u);
		}
	} else l = r.__e = F$2(u.__e, r, u, i, f, o, e, c, a, t);
	return (s = n$1.diffed) && s(r), l;
}
function B$1(n, t) {
	if (n && 8 == n.nodeType && n.data.startsWith("$s")) for (var r = 1; n = n.nextSibling;) {
		if (8 == n.nodeType) {
			if (n.data.startsWith("$s")) r++;
			else if (n.data.startsWith("/$s") && !--r) return n;
		}
		t && t.push(n);
	}
}
function D$1(n) {
	n && (n.__c && (n.__c.__g |= 4), n.__k && n.__k.some(D$1));
}
function E$1(t, r, u) {
	for (var i = 0; i < u.length;) G$1(u[i++], u[i++], u[i++]);
	n$1.__c && n$1.__c(r, t), t.some(function(r) {
		try {
			t = r.__h, r.__h = [], t.some(function(n) {
				n.call(r);
			});
		} catch (t) {
			n$1.__e(t, r.__v);
		}
	});
}
function F$2(t, r, u, i, f, o, e, l, c, a) {
	var s, h, y, _, k, b, m, M, $ = u.props || p$3, x = r.props, C = r.type;
	if ("svg" == C ? f = "http://www.w3.org/2000/svg" : "math" == C ? f = "http://www.w3.org/1998/Math/MathML" : f || (f = "http://www.w3.org/1999/xhtml"), o) {
		for (s = 0; s < o.length; s++) if ((k = o[s]) && (C ? k.localName == C : 3 == k.nodeType)) {
			t = k, o[s] = null;
			break;
		}
	}
	if (!t) {
		if (M = a.ownerDocument || document, !C) return M.createTextNode(x);
		t = M.createElementNS(f, C, x.is ? x : a), l && (n$1.__m && n$1.__m(r, o), l = !1), o = null;
	}
	if (C) {
		if (a = "template" == C && t.content || t, o = "textarea" == C && null != x.defaultValue ? null : o && d$3.call(a.childNodes), !l && o) for ($ = {}, s = 0; s < t.attributes.length; s++) $[(k = t.attributes[s]).name] = k.value;
		for (s in $) k = $[s], "dangerouslySetInnerHTML" == s ? y = k : "children" == s || s in x || "value" == s && "defaultValue" in x || "checked" == s && "defaultChecked" in x || N(t, s, null, k, f);
		for (s in x) k = x[s], "children" == s ? _ = k : "dangerouslySetInnerHTML" == s ? h = k : "value" == s ? b = k : "checked" == s ? m = k : l && "function" != typeof k || $[s] === k || N(t, s, k, $[s], f);
		h ? (l || y && (h.__html == y.__html || h.__html == t.innerHTML) || (t.innerHTML = h.__html), r.__k = []) : (y && (t.textContent = ""), ("foreignObject" == C || "http://www.w3.org/1998/Math/MathML" == f && v$2.test(C)) && (f = "http://www.w3.org/1999/xhtml"), I(a, w$3(_) ? _ : [_], r, u, i, f, o, e, o ? o[0] : u.__k && S$1(u, 0), l, c), o && o.some(g$3)), l && "textarea" != C || (s = "value", "progress" == C && null == b ? t.removeAttribute(s) : null == b || b === t[s] && ("progress" != C || b) || N(t, s, b, $[s], f), s = "checked", null != m && m != t[s] && N(t, s, m, $[s], f));
	} else $ === x || l && t.data == x || (t.data = x);
	return t;
}
function G$1(t, r, u, i) {
	try {
		"function" == typeof t ? r ? r.__x = t(r) || 1 : i && (i = i.__c || i.__e) && (r = i.__x) && (i.__x = null, "function" == typeof r ? r() : t(null)) : t.current = r;
	} catch (t) {
		n$1.__e(t, u);
	}
}
function J(t, r, u) {
	var i, f, o, e;
	if (n$1.unmount && n$1.unmount(t), !(i = t.ref) || i.current && i.current != t.__e || G$1(i, null, r, t), i = t.__c) {
		if (i.componentWillUnmount) try {
			i.componentWillUnmount();
		} catch (t) {
			n$1.__e(t, r);
		}
		i.__P = i.__n = null;
	}
	if (i = t.__k) for (e = 0; e < i.length; e++) i[e] && J(i[e], r, "function" != typeof t.type || u && !t.props.__P);
	!u && (i = t.__c) && (i = i.__z) && (f = B$1(i, o = [])) && (i == t.__e && o.some(g$3), g$3(f), g$3(i)), u || g$3(t.__e), t.__e = t.__c = t.__ = null;
}
function K(n, t, r) {
	return this.constructor(n, r);
}
function Q(t, r) {
	var u, i, f, o;
	n$1.__ && n$1.__(t, r), 9 == r.nodeType && (r = r.documentElement), i = (u = t && 32 & t.__u) ? null : r.__k, r.__k = m$3($, { children: [t] }), f = [], o = [], z$1(r, r.__k, i || p$3, p$3, r.namespaceURI, i ? null : r.firstChild ? d$3.call(r.childNodes) : null, f, i ? i.__e : r.firstChild, u, o), E$1(f, r.__k, o), r.__k.props.children = null;
}
n$1 = { __e: function(n, t, r, u) {
	for (var i, o, e; t = t.__;) if ((i = t.__c) && !(1 & i.__g)) {
		i.__g |= 4;
		try {
			if ((e = (o = i.constructor) && o.getDerivedStateFromError) && i.setState(o.getDerivedStateFromError(n)), i.componentDidCatch && (i.componentDidCatch(n, u || {}), e = 1), e && 8 & i.__g) return void (i.__g |= 2);
		} catch (t) {
			n = t;
		}
	}
	throw f$3 = 0, n;
} }, t$2 = 0, r$2 = function(n) {
	return null != n && n.constructor === h$3;
}, x$2.prototype.setState = function(n, t) {
	var r = this.__s;
	r && r != this.state || (r = this.__s = _$3({}, this.state)), "function" == typeof n && (n = n(_$3({}, r), this.props)), n && (_$3(r, n), this.__v && (t && this.__k.push(t), L(this)));
}, x$2.prototype.forceUpdate = function(n) {
	this.__v && (this.__g |= 4, n && this.__h.push(n), L(this));
}, x$2.prototype.render = $, u$3 = [], f$3 = 0, o$3 = function(n, t) {
	return n.__v.__b - t.__v.__b;
}, e$2 = Symbol(), l$2 = /(PointerCapture)$|Capture$/i, c$2 = 0, a$3 = {};
// src/api/tiles.ts
var MAGIC$1 = "SLT1";
var keyOf$2 = (track, z, i) => `${track}/${z}/${i}`;
/** All tiles by track, level and place. */
function tileParts(all) {
	const out = /* @__PURE__ */ new Map();
	const view = new DataView(all);
	for (let at = 0; at < all.byteLength;) {
		const end = at + 4 + view.getUint32(at, true);
		const head = at + 12;
		const base = head + view.getUint32(at + 8, true);
		const { z, blocks } = JSON.parse(new TextDecoder().decode(new Uint8Array(all, head, base - head)));
		blocks.forEach((block, k) => {
			const to = k + 1 < blocks.length ? base + blocks[k + 1].offset : end;
			out.set(keyOf$2(block.track, z, block.i), {
				block,
				body: new Uint8Array(all, base + block.offset, to - base - block.offset)
			});
		});
		at = end;
	}
	return out;
}
/** An answer of the server with those of the tiles that are here. */
function savedTiles(parts, z, from, to, tracks) {
	const found = [];
	for (let i = from; i <= to; i++) for (const track of tracks) {
		const part = parts.get(keyOf$2(track, z, i));
		if (part) found.push(part);
	}
	let offset = 0;
	const blocks = found.map(({ block, body }) => {
		const moved = {
			...block,
			offset
		};
		offset += body.length;
		return moved;
	});
	const text = JSON.stringify({
		v: 1,
		z,
		blocks
	});
	const header = new TextEncoder().encode(text + " ".repeat((4 - new TextEncoder().encode(text).length % 4) % 4));
	const out = new Uint8Array(8 + header.length + offset);
	out.set(new TextEncoder().encode(MAGIC$1));
	new DataView(out.buffer).setUint32(4, header.length, true);
	out.set(header, 8);
	found.forEach(({ body }, k) => out.set(body, 8 + header.length + blocks[k].offset));
	return out.buffer;
}
// src/api/file.ts
var block = typeof document === "undefined" ? null : document.getElementById("tb-sol-data");
/** Whether this page was saved as a file: nothing can be asked that is not in it. */
var inFile = block !== null;
/** Whether it shows one report alone, as a cell of a notebook does. */
var alone = block?.dataset["alone"] === "true";
/** Code of the error of what a saved page does not hold. */
var NOT_IN_FILE = "not_in_file";
/** Why a control does nothing in a saved page. */
var LIVE = "in the live page";
/** What the page shows first: pairs of the address. */
var startPairs = () => JSON.parse(block?.dataset["start"] ?? "{}");
var saved = {
	answers: {},
	live: ""
};
var tiles = /* @__PURE__ */ new Map();
/** The answer in which a script element holds what is gzip, in base64. */
function unpacked(element) {
	const packed = Uint8Array.from(atob(element.textContent.trim()), (c) => c.charCodeAt(0));
	return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
}
/** Unpacks what the page holds. Called once, before anything is asked. */
async function openFile() {
	if (!block) return;
	saved = JSON.parse(await unpacked(block).text());
	tiles = tileParts(await unpacked(document.getElementById("tb-sol-tiles")).arrayBuffer());
}
/** Address of the live page that a saved one came from, "" where it is not known. */
var liveAddress = () => saved.live;
/** The tiles of an address, as the server sends them: those that the file has. */
function tilesIn(url) {
	const query = new URLSearchParams(url.slice(url.indexOf("?")));
	const [from, to] = query.get("i").split("-").map(Number);
	return savedTiles(tiles, Number(query.get("z")), from, to ?? from, query.get("tracks").split(",").map(Number));
}
var WHERE = /* @__PURE__ */ new Set([
	"run",
	"worker",
	"span",
	"capture",
	"tables",
	"wait"
]);
/** The name under which a saved page holds the answer of an address. */
function nameOf$1(url) {
	const [path, query = ""] = url.split("?", 2);
	const kept = query.split("&").filter(Boolean).map((part) => part.split("=", 2).map(decodeURIComponent)).filter(([name, value]) => value && !WHERE.has(name)).map(([name, value]) => `${name}=${value}`).sort();
	return [decodeURIComponent(path), ...kept].join("\n");
}
var nameIn = (url) => alone ? nameOf$1(url.split("?", 1)[0]) : nameOf$1(url);
/** Whether a saved page holds the answer of an address; a live page holds all. */
var holds = (url) => !inFile || Object.hasOwn(saved.answers, nameIn(url));
/** The answer of an address, or why there is none. */
function savedAnswer(url) {
	const name = nameIn(url);
	if (Object.hasOwn(saved.answers, name)) return { value: saved.answers[name] };
	return { error: {
		code: NOT_IN_FILE,
		message: "This view is not in this file.",
		hint: saved.live ? `Open it in the live page: ${saved.live}` : "Open the recording in the live page: tb-sol serve LOGDIR"
	} };
}
// node_modules/preact/hooks/dist/hooks.mjs
var t$1;
var r$1;
var u$2;
var i$1;
var o$2 = Object.is;
var f$2 = 0;
var c$1 = [];
var e$1 = [];
var a$2 = n$1;
var v$1 = a$2.__b;
var l$1 = a$2.__r;
var m$2 = a$2.diffed;
var h$2 = a$2.__c;
var s$1 = a$2.unmount;
var p$2 = a$2.__;
function y$2(n, t) {
	a$2.__h && a$2.__h(r$1, n, f$2 || t), f$2 = 0;
	var u = r$1.__H || (r$1.__H = {
		__: [],
		__h: []
	});
	return n >= u.__.length && u.__.push({}), u.__[n];
}
function d$2(n) {
	return f$2 = 1, _$2(G, n);
}
function _$2(n, u, i) {
	var f = y$2(t$1++, 2);
	if (f.t = n, !f.__c && (f.__ = [i ? i(u) : G(void 0, u), function(n) {
		var t = (f.__N || f.__)[0], r = f.t(t, n);
		o$2(t, r) || (f.__N = [r, f.__[1]], f.__c.setState({}));
	}], f.__c = r$1, !r$1.__f)) {
		r$1.__f = !0;
		var c = r$1.shouldComponentUpdate;
		r$1.shouldComponentUpdate = function(n, t, r) {
			var u = this.__H;
			if (!u) return !0;
			var i = !1, f = this.props != n;
			if (u.__.some(function(n) {
				n.__N && (i = !0, o$2(n.__[0], n.__N[0]) || (f = !0));
			}), c) {
				var e = c.call(this, n, t, r);
				return i ? e || f : e;
			}
			return !i || f;
		};
	}
	return f.__;
}
function A$1(n, u) {
	var i = y$2(t$1++, 3);
	!a$2.__s && E(i.__H, u) && (i.__P = !0, i.__ = n, i.u = u, r$1.__H.__h.push(i));
}
function F$1(n, u) {
	var i = y$2(t$1++, 4);
	!a$2.__s && E(i.__H, u) && (i.__P = !1, i.__ = n, i.u = u, r$1.__h.push(i));
}
function T$1(n) {
	return f$2 = 5, w$2(function() {
		return { current: n };
	}, []);
}
function w$2(n, r) {
	var u = y$2(t$1++, 7);
	return E(u.__H, r) && (u.__ = n(), u.__H = r), u.__;
}
function g$2() {
	var n;
	do {
		for (; n = e$1.shift();) try {
			C(n);
		} catch (t) {
			a$2.__e(t, { __: (n = n.__P) && n.__v });
		}
		for (; n = c$1.shift();) {
			var t = n.__H;
			if (n.__P && t) try {
				t.__h.some(C), t.__h.some(D), t.__h = [];
			} catch (r) {
				t.__h = [], a$2.__e(r, n.__v);
			}
		}
	} while (e$1.length);
}
a$2.__b = function(n) {
	r$1 = null, v$1 && v$1(n);
}, a$2.__ = function(n, t) {
	n && t.__k && t.__k.__m && (n.__m = t.__k.__m), p$2 && p$2(n, t);
}, a$2.__r = function(n) {
	l$1 && l$1(n), t$1 = 0;
	var i = (r$1 = n.__c).__H;
	i && (u$2 == r$1 ? r$1.__h = [] : (i.__h.some(C), i.__h.some(D), t$1 = 0), i.__h = [], i.__.some(function(n) {
		n.__N && (n.__ = n.__N), n.u = n.__N = void 0;
	})), u$2 = r$1;
}, a$2.diffed = function(n) {
	m$2 && m$2(n);
	var t = n.__c;
	t && t.__H && (t.__H.__h.length && B(c$1.push(t)), t.__H.__.some(function(n) {
		n.u && (n.__H = n.u);
	})), u$2 = r$1 = null;
}, a$2.__c = function(n, t) {
	t.some(function(n) {
		try {
			n.__h.some(C), n.__h = n.__h.filter(function(n) {
				return !n.__ || D(n);
			});
		} catch (t) {
			n.__h = [function() {
				throw t;
			}];
		}
	}), h$2 && h$2(n, t);
}, a$2.unmount = function(n) {
	s$1 && s$1(n);
	var t, r, u = n.__c;
	u && u.__H && (u.__H.__.some(function(u) {
		try {
			if (u.__P && u.__c) {
				if (void 0 === r) {
					for (r = n.__; r && (!r.__c || !r.__c.__P);) r = r.__;
					r = r && r.__c;
				}
				u.__P = r, B(e$1.push(u));
			} else C(u);
		} catch (n) {
			t = n;
		}
	}), u.__H = void 0, t && a$2.__e(t, u.__v));
};
var k$1 = "function" == typeof requestAnimationFrame;
function z(n) {
	var t, r = function() {
		clearTimeout(u), k$1 && cancelAnimationFrame(t), setTimeout(n);
	}, u = setTimeout(r, 35);
	k$1 && (t = requestAnimationFrame(r));
}
function B(n) {
	1 != n && i$1 == a$2.requestAnimationFrame || ((i$1 = a$2.requestAnimationFrame) || z)(g$2);
}
function C(n) {
	var t = r$1, u = n.__c;
	"function" == typeof u && (n.__c = void 0, u()), r$1 = t;
}
function D(n) {
	var t = r$1;
	n.__c = n.__(), r$1 = t;
}
function E(n, t) {
	return !n || n.length != t.length || t.some(function(t, r) {
		return !o$2(t, n[r]);
	});
}
function G(n, t) {
	return "function" == typeof t ? t(n) : t;
}
// node_modules/@preact/signals-core/dist/signals-core.module.js
var i = Symbol.for("preact-signals");
function t() {
	if (!(v > 1)) {
		var i, t = !1;
		(function() {
			var i = c;
			c = void 0;
			while (void 0 !== i) {
				var t = i.S;
				if (t.v === i.v) {
					for (var r = t.t; void 0 !== r; r = r.x) if (r.i === i.i) r.i = t.i;
				}
				i = i.o;
			}
		})();
		while (void 0 !== h$1) {
			var r = h$1;
			h$1 = void 0;
			s++;
			while (void 0 !== r) {
				var n = r.u;
				r.u = void 0;
				r.f &= -3;
				if (!(8 & r.f) && w$1(r)) try {
					r.c();
				} catch (r) {
					if (!t) {
						i = r;
						t = !0;
					}
				}
				r = n;
			}
		}
		s = 0;
		v--;
		if (t) throw i;
	} else v--;
}
function r(i) {
	if (v > 0) return i();
	u$1 = ++e;
	v++;
	try {
		return i();
	} finally {
		t();
	}
}
var n;
var o$1 = void 0;
function f$1(i) {
	var t = o$1, r = n;
	o$1 = void 0;
	n = void 0;
	try {
		return i();
	} finally {
		o$1 = t;
		n = r;
	}
}
var h$1 = void 0;
var v = 0;
var s = 0;
var e = 0;
var u$1 = 0;
var c = void 0;
var a$1 = 0;
function d$1(i) {
	if (void 0 !== o$1) {
		var t = i.n;
		if (void 0 === t || t.t !== o$1) {
			t = {
				i: 0,
				S: i,
				p: o$1.s,
				n: void 0,
				t: o$1,
				e: void 0,
				x: void 0,
				r: t
			};
			if (void 0 !== o$1.s) o$1.s.n = t;
			o$1.s = t;
			i.n = t;
			if (32 & o$1.f) i.S(t);
			return t;
		} else if (-1 === t.i) {
			t.i = 0;
			if (void 0 !== t.n) {
				t.n.p = t.p;
				if (void 0 !== t.p) t.p.n = t.n;
				t.p = o$1.s;
				t.n = void 0;
				o$1.s.n = t;
				o$1.s = t;
			}
			return t;
		}
	}
}
function l(i, t) {
	this.v = i;
	this.i = 0;
	this.n = void 0;
	this.t = void 0;
	this.l = 0;
	this.W = null == t ? void 0 : t.watched;
	this.Z = null == t ? void 0 : t.unwatched;
	this.name = null == t ? void 0 : t.name;
}
l.prototype.brand = i;
l.prototype.h = function() {
	return !0;
};
l.prototype.S = function(i) {
	var t = this, r = this.t;
	if (r !== i && void 0 === i.e) {
		i.x = r;
		this.t = i;
		if (void 0 !== r) r.e = i;
		else f$1(function() {
			var i;
			null == (i = t.W) || i.call(t);
		});
	}
};
l.prototype.U = function(i) {
	var t = this;
	if (void 0 !== this.t) {
		var r = i.e, n = i.x;
		if (void 0 !== r) {
			r.x = n;
			i.e = void 0;
		}
		if (void 0 !== n) {
			n.e = r;
			i.x = void 0;
		}
		if (i === this.t) {
			this.t = n;
			if (void 0 === n) f$1(function() {
				var i;
				null == (i = t.Z) || i.call(t);
			});
		}
	}
};
l.prototype.subscribe = function(i) {
	var t = this;
	return x$1(function() {
		var r = t.value;
		f$1(function() {
			return i(r);
		});
	}, { name: "sub" });
};
l.prototype.valueOf = function() {
	return this.value;
};
l.prototype.toString = function() {
	return this.value + "";
};
l.prototype.toJSON = function() {
	return this.value;
};
l.prototype.peek = function() {
	var i = this;
	return f$1(function() {
		return i.value;
	});
};
Object.defineProperty(l.prototype, "value", {
	get: function() {
		var i = d$1(this);
		if (void 0 !== i) i.i = this.i;
		return this.v;
	},
	set: function(i) {
		if (i !== this.v) {
			if (s > 100) throw new Error("Cycle detected");
			(function(i) {
				if (0 !== v && 0 === s) {
					if (i.l !== u$1) {
						i.l = u$1;
						c = {
							S: i,
							v: i.v,
							i: i.i,
							o: c
						};
					}
				}
			})(this);
			this.v = i;
			this.i++;
			a$1++;
			v++;
			try {
				for (var r = this.t; void 0 !== r; r = r.x) r.t.N();
			} finally {
				t();
			}
		}
	}
});
function y$1(i, t) {
	return new l(i, t);
}
function w$1(i) {
	for (var t = i.s; void 0 !== t; t = t.n) if (t.S.i !== t.i || !t.S.h() || t.S.i !== t.i) return !0;
	return !1;
}
function b$1(i) {
	for (var t = i.s; void 0 !== t; t = t.n) {
		var r = t.S.n;
		if (void 0 !== r) t.r = r;
		t.S.n = t;
		t.i = -1;
		if (void 0 === t.n) {
			i.s = t;
			break;
		}
	}
}
function _$1(i) {
	var t = i.s, r = void 0;
	while (void 0 !== t) {
		var n = t.p;
		if (-1 === t.i) {
			t.S.U(t);
			if (void 0 !== n) n.n = t.n;
			if (void 0 !== t.n) t.n.p = n;
		} else r = t;
		t.S.n = t.r;
		if (void 0 !== t.r) t.r = void 0;
		t = n;
	}
	i.s = r;
}
function j(i, t) {
	l.call(this, void 0, t);
	this.x = i;
	this.s = void 0;
	this.g = a$1 - 1;
	this.f = 4;
}
j.prototype = new l();
j.prototype.h = function() {
	this.f &= -3;
	if (1 & this.f) return !1;
	if (32 == (36 & this.f)) return !0;
	this.f &= -5;
	if (this.g === a$1) return !0;
	this.g = a$1;
	this.f |= 1;
	if (this.i > 0 && !w$1(this)) {
		this.f &= -2;
		return !0;
	}
	var i = o$1;
	try {
		b$1(this);
		o$1 = this;
		var t = this.x();
		if (16 & this.f || this.v !== t || 0 === this.i) {
			this.v = t;
			this.f &= -17;
			this.i++;
		}
	} catch (i) {
		this.v = i;
		this.f |= 16;
		this.i++;
	}
	o$1 = i;
	_$1(this);
	this.f &= -2;
	return !0;
};
j.prototype.S = function(i) {
	if (void 0 === this.t) {
		this.f |= 36;
		for (var t = this.s; void 0 !== t; t = t.n) t.S.S(t);
	}
	l.prototype.S.call(this, i);
};
j.prototype.U = function(i) {
	if (void 0 !== this.t) {
		l.prototype.U.call(this, i);
		if (void 0 === this.t) {
			this.f &= -33;
			for (var t = this.s; void 0 !== t; t = t.n) t.S.U(t);
		}
	}
};
j.prototype.N = function() {
	if (!(2 & this.f)) {
		this.f |= 6;
		for (var i = this.t; void 0 !== i; i = i.x) i.t.N();
	}
};
Object.defineProperty(j.prototype, "value", { get: function() {
	if (1 & this.f) throw new Error("Cycle detected");
	var i = d$1(this);
	this.h();
	if (void 0 !== i) i.i = this.i;
	if (16 & this.f) throw this.v;
	return this.v;
} });
function O(i, t) {
	return new j(i, t);
}
function p$1(i) {
	var r = i.j;
	i.j = void 0;
	if ("function" == typeof r) {
		v++;
		var n = o$1;
		o$1 = void 0;
		try {
			r();
		} catch (t) {
			i.f &= -2;
			i.f |= 8;
			g$1(i);
			throw t;
		} finally {
			o$1 = n;
			t();
		}
	}
}
function g$1(i) {
	for (var t = i.s; void 0 !== t; t = t.n) t.S.U(t);
	i.x = void 0;
	i.s = void 0;
	p$1(i);
}
function S(i) {
	if (o$1 !== this) throw new Error("Out-of-order effect");
	_$1(this);
	o$1 = i;
	this.f &= -2;
	try {
		if (8 & this.f) g$1(this);
	} finally {
		t();
	}
}
function m$1(i, t) {
	this.x = i;
	this.j = void 0;
	this.s = void 0;
	this.u = void 0;
	this.f = 32;
	this.name = null == t ? void 0 : t.name;
	if (n) n.push(this);
}
m$1.prototype.c = function() {
	var i = this.S();
	try {
		if (8 & this.f) return;
		if (void 0 === this.x) return;
		var t = this.x();
		if ("function" == typeof t) this.j = t;
	} finally {
		i();
	}
};
m$1.prototype.S = function() {
	if (1 & this.f) throw new Error("Cycle detected");
	this.f |= 1;
	this.f &= -9;
	p$1(this);
	b$1(this);
	v++;
	var i = o$1;
	o$1 = this;
	return S.bind(this, i);
};
m$1.prototype.N = function() {
	if (!(2 & this.f)) {
		this.f |= 2;
		this.u = h$1;
		h$1 = this;
	}
};
m$1.prototype.d = function() {
	this.f |= 8;
	if (!(1 & this.f)) g$1(this);
};
m$1.prototype.dispose = function() {
	this.d();
};
function x$1(i, t) {
	var r = new m$1(i, t);
	try {
		r.c();
	} catch (i) {
		r.d();
		throw i;
	}
	var n = r.d.bind(r);
	n[Symbol.dispose] = n;
	return n;
}
// node_modules/@preact/signals/dist/signals.module.js
var h;
var d;
var p;
var m = "undefined" != typeof window && !!window.__PREACT_SIGNALS_DEVTOOLS__;
var _ = [];
var g = [];
x$1(function() {
	h = this.N;
})();
function b(i, n) {
	n$1[i] = n.bind(null, n$1[i] || function() {});
}
function y(i) {
	if (p) {
		var n = p;
		p = void 0;
		n();
	}
	p = i && i.S();
}
function w(i) {
	var n = this, r = i.data, t = useSignal(r);
	t.name = "ReactiveDom";
	t.value = r;
	var e = w$2(function() {
		var i = n, r = n.__v;
		while (r = r.__) if (r.__c) {
			r.__c.__$f |= 4;
			break;
		}
		var o = O(function() {
			var i = t.value.value;
			return 0 === i ? 0 : !0 === i ? "" : i || "";
		}), e = O(function() {
			return !Array.isArray(o.value) && !r$2(o.value);
		}), u = x$1(function() {
			this.N = M;
			if (e.value) {
				var n = o.value;
				if (i.__v && i.__v.__e && 3 === i.__v.__e.nodeType) i.__v.__e.data = n;
			}
		}), c = n.__$u.d;
		n.__$u.d = function() {
			u();
			c.call(this);
		};
		return [e, o];
	}, []), u = e[0], c = e[1];
	return u.value ? c.peek() : c.value;
}
w.displayName = "ReactiveTextNode";
Object.defineProperties(l.prototype, {
	constructor: {
		configurable: !0,
		value: k$2($, null).constructor
	},
	type: {
		configurable: !0,
		value: w
	},
	props: {
		configurable: !0,
		get: function() {
			var i = this;
			return { data: { get value() {
				return i.value;
			} } };
		}
	},
	__b: {
		configurable: !0,
		value: 1
	}
});
b("__b", function(i, n) {
	y();
	d = void 0;
	if ("string" == typeof n.type) {
		var r, t = n.props;
		for (var f in t) if ("children" !== f) {
			var o = t[f];
			if (o instanceof l) {
				if (!r) n.__np = r = {};
				r[f] = o;
				t[f] = o.peek();
			}
		}
	}
	i(n);
});
b("__r", function(i, r) {
	i(r);
	if (r.type !== $) {
		y();
		var t, f = r.__c;
		if (f) {
			f.__$f &= -2;
			if (void 0 === (t = f.__$u)) f.__$u = t = function(i, n) {
				var r;
				x$1(function() {
					r = this;
				}, { name: n });
				r.c = i;
				return r;
			}(function(i) {
				return function() {
					var n;
					if (m) null == (n = this.y) || n.call(this);
					i.__$f |= 1;
					i.setState({});
				};
			}(f), "function" == typeof r.type ? r.type.displayName || r.type.name : "");
		}
		d = f;
		y(t);
	}
});
b("__e", function(i, n, r, t) {
	y();
	d = void 0;
	i(n, r, t);
});
b("diffed", function(i, n) {
	y();
	d = void 0;
	var r;
	if ("string" == typeof n.type && (r = n.__e)) {
		var t = n.__np, f = n.props, o = r.U;
		if (o) for (var e in o) {
			var u = o[e];
			if (!(void 0 === u || t && e in t)) {
				u.d();
				o[e] = void 0;
			}
		}
		if (t) {
			if (!o) {
				o = {};
				r.U = o;
			}
			for (var a in t) {
				var c = o[a], v = t[a];
				if (void 0 === c) {
					c = k(r, a, v, f);
					o[a] = c;
				} else c.o(v, f);
			}
		}
	}
	i(n);
});
function k(i, n, r, t) {
	var f = n in i && void 0 === i.ownerSVGElement, o = y$1(r);
	return {
		o: function(i, n) {
			o.value = i;
			t = n;
		},
		d: x$1(function() {
			this.N = M;
			var r = o.value.value;
			if (t[n] !== r) {
				t[n] = r;
				if (f) i[n] = r;
				else if (null != r && (!1 !== r || "-" === n[4])) i.setAttribute(n, r);
				else i.removeAttribute(n);
			}
		})
	};
}
b("unmount", function(i, n) {
	if ("string" == typeof n.type) {
		var r = n.__e;
		if (r) {
			var t = r.U;
			if (t) {
				r.U = void 0;
				for (var f in t) {
					var o = t[f];
					if (o) o.d();
				}
			}
		}
		var e = n.__np;
		if (e) {
			var u = n.props;
			for (var a in e) u[a] = e[a];
		}
		n.__np = void 0;
	} else {
		var c = n.__c;
		if (c) {
			c.__$f |= 8;
			var v = c.__$u;
			if (v) {
				c.__$u = void 0;
				v.d();
			}
		}
	}
	i(n);
});
b("__h", function(i, n, r, t) {
	if (t < 3) n.__$f |= 2;
	i(n, r, t);
});
x$2.prototype.shouldComponentUpdate = function(i, n) {
	if (this.__R) return !0;
	var r = this.__$u, t = r && void 0 !== r.s;
	for (var f in n) return !0;
	if (this.__f || "boolean" == typeof this.u && !0 === this.u) {
		var o = 2 & this.__$f;
		if (!(t || o || 4 & this.__$f)) return !0;
		if (1 & this.__$f) return !0;
	} else {
		if (!(t || 4 & this.__$f)) return !0;
		if (3 & this.__$f) return !0;
	}
	for (var e in i) if ("__source" !== e && i[e] !== this.props[e]) return !0;
	for (var u in this.props) if (!(u in i)) return !0;
	return !1;
};
function useSignal(i, n) {
	return w$2(function() {
		return y$1(i, n);
	}, []);
}
var q = "undefined" == typeof requestAnimationFrame ? setTimeout : function(i) {
	var n = function() {
		clearTimeout(r);
		cancelAnimationFrame(t);
		i();
	}, r = setTimeout(n, 35), t = requestAnimationFrame(n);
};
var A = function(i) {
	queueMicrotask(function() {
		queueMicrotask(i);
	});
};
function T() {
	r(function() {
		var i;
		while (i = _.shift()) h.call(i);
	});
}
function x() {
	if (1 === _.push(this)) (n$1.requestAnimationFrame || q)(T);
}
function F() {
	r(function() {
		var i;
		while (i = g.shift()) h.call(i);
	});
}
function M() {
	if (1 === g.push(this)) (n$1.requestAnimationFrame || A)(F);
}
function useSignalEffect(i, n) {
	var r = T$1(i);
	r.current = i;
	var t = d;
	A$1(function() {
		return x$1(function() {
			this.N = x;
			if (!(t && 8 & t.__$f)) return r.current();
		}, n);
	}, []);
}
// src/api/client.ts
/** An error of a request: the error object of the server, or of the network. */
var ApiError = class extends Error {
	body;
	status;
	progress;
	constructor(body, status, progress = null) {
		super(body.message);
		this.body = body;
		this.status = status;
		this.progress = progress;
	}
	/** The recording is being read: ask again. */
	get loading() {
		return this.body.code === "still_loading";
	}
};
/** `path?name=value` with empty values left out. */
function address$1(path, query) {
	const text = Object.entries(query).filter(([, v]) => v !== void 0 && v !== "").map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v)}`).join("&");
	return text ? `${path}?${text}` : path;
}
async function reach(url, init) {
	try {
		return await fetch(url, {
			...init,
			headers: {
				...init.headers,
				Prefer: "respond-async"
			}
		});
	} catch (cause) {
		if (init.signal?.aborted) throw cause;
		throw new ApiError({
			code: "unreachable",
			message: "The server does not answer.",
			hint: "Is it still running? Try again when it is."
		}, 0);
	}
}
async function ask$1(url, init) {
	if (inFile) return fromFile(url);
	return bodyOf$1(await reach(url, init));
}
function fromFile(url) {
	const found = savedAnswer(url);
	if ("error" in found) throw new ApiError(found.error, 404);
	return found.value;
}
async function bodyOf$1(reply) {
	const text = await reply.text();
	let body;
	try {
		body = JSON.parse(text);
	} catch {
		throw new ApiError({
			code: "not_json",
			message: `The server answered ${reply.status} without JSON.`,
			hint: text.slice(0, 200)
		}, reply.status);
	}
	if (reply.ok && reply.status !== 202) return body;
	const failed = body;
	throw new ApiError(failed.error ?? {
		code: "error",
		message: `The server answered ${reply.status}.`
	}, reply.status, failed.progress ?? null);
}
var get = (url, signal) => ask$1(url, signal ? { signal } : {});
var where$1 = (w) => ({
	run: w.run,
	worker: w.worker,
	span: w.span,
	capture: w.capture
});
var getRuns = (signal) => get("api/v1/runs", signal);
var getAnalyses = (w, device = "", signal, wait = "") => get(address$1("api/v1/analyses", w ? {
	...where$1(w),
	device_limits: device,
	wait
} : {}), signal);
var getReport = (name, w, query, signal) => get(address$1(`api/v1/analysis/${encodeURIComponent(name)}`, {
	...w && where$1(w),
	...query,
	tables: "pages"
}), signal);
var getFound = (w, text, device, signal) => get(address$1("api/v1/search", {
	...where$1(w),
	q: text,
	device_limits: device
}), signal);
var getSummaries = (signal) => get("api/v1/summaries", signal);
/** Where the whole report can be saved from. */
var reportAddress = (name, w, query) => address$1(`api/v1/analysis/${encodeURIComponent(name)}`, {
	...w && where$1(w),
	...query
});
function rowsAddress(name, w, query, rows) {
	const plain = Object.fromEntries(Object.entries(rows).filter((e) => typeof e[1] === "string"));
	const lists = Object.entries(rows).flatMap(([k, v]) => typeof v === "string" ? [] : v.map((one) => `&${k}=${encodeURIComponent(one)}`));
	return address$1(`api/v1/table/${encodeURIComponent(name)}`, {
		...w && where$1(w),
		...query,
		...plain
	}) + lists.join("");
}
/** Rows of a large table. */
function getRows(name, w, query, rows, body, signal) {
	const url = rowsAddress(name, w, query, rows);
	if (!body.picked && !body.toggled) return get(url, signal);
	return ask$1(url, {
		method: "POST",
		body: JSON.stringify(body),
		headers: { "Content-Type": "application/json" },
		signal
	});
}
var postCancel = (w) => ask$1(address$1("api/v1/cancel", where$1(w)), { method: "POST" });
/** Says that this page waits no more, also while it is being closed. */
var postLeave = () => inFile || navigator.sendBeacon("api/v1/leave");
var postRescan = () => ask$1("api/v1/rescan", { method: "POST" });
var traceAddress = (w) => address$1("api/v1/trace", where$1(w));
var exportAddress = (w, form, more = {}) => address$1("api/v1/export", {
	...where$1(w),
	form,
	...more
});
function timelineAddress(route, at, query) {
	const texts = Object.fromEntries(Object.entries(query).map(([k, v]) => [k, v === void 0 ? void 0 : String(v)]));
	const lists = [...at.workers.map((w) => ["worker", w]), ...at.spans.map((s) => ["span", s])].filter(([, v]) => v);
	return address$1(`api/v1/timeline${route && `/${route}`}`, {
		run: at.run,
		capture: at.capture,
		...at.al && { al: at.al },
		...at.lay && { lay: at.lay },
		...texts
	}) + lists.map(([k, v]) => `&${k}=${encodeURIComponent(v)}`).join("");
}
var getTimeline = (at, signal) => get(timelineAddress("", at, {}), signal);
var getTimelineNames = (at, fp, signal) => get(timelineAddress("names", at, { fp }), signal);
var getEvent = (at, query, signal) => get(timelineAddress("event", at, query), signal);
var getEvents = (at, query, signal) => get(timelineAddress("events", at, query), signal);
var getFlows = (at, query, signal) => get(timelineAddress("flows", at, query), signal);
var PATH = { kind: "path" };
/** Whether the critical path can be had: a saved page may hold none. */
var hasPath = () => holds(timelineAddress("flows", {
	run: "",
	workers: [],
	spans: []
}, PATH));
/** The critical path inside of a window; of a saved page all that it has. */
var getPath = (at, query, signal) => getFlows(at, inFile ? PATH : {
	...PATH,
	...query
}, signal);
var getHits = (at, query, signal) => get(timelineAddress("search", at, query), signal);
async function bytes(url, init) {
	const reply = await reach(url, init);
	return reply.ok && reply.status !== 202 ? reply.arrayBuffer() : bodyOf$1(reply);
}
/** Tiles of the timeline, in bytes; of a saved page those that it has. */
async function getTiles(at, query, signal) {
	const url = timelineAddress("tiles", at, query);
	return inFile ? tilesIn(url) : bytes(url, { signal });
}
/** How large a trace file will be. */
var getExportSize = (at, query, signal) => get(timelineAddress("export", at, {
	...query,
	size: 1
}), signal);
/** A window of the timeline as a trace file. */
var getTimelineFile = (at, query) => bytes(timelineAddress("export", at, query), {});
// src/state/select.ts
function choose$1(runs, view) {
	if (!view.run && !runs.runs.length) return { state: "none" };
	const run = view.run ? runs.runs.find((r) => r.name === view.run) : runs.runs[0];
	if (!run) return {
		state: "absent",
		what: "run",
		name: view.run,
		near: nearest(view.run, runs.runs.map((r) => r.name)),
		within: ""
	};
	const worker = view.worker ? run.workers.find((w) => w.name === view.worker) : run.workers.find((w) => !isJoined(w)) ?? run.workers[0];
	if (!worker) return {
		state: "absent",
		what: "worker",
		name: view.worker,
		near: nearest(view.worker, run.workers.map((w) => w.name)),
		within: run.name
	};
	const span = view.span ? worker.spans.find((s) => s.name === view.span) : worker.spans.at(-1);
	if (!span) return {
		state: "absent",
		what: "span",
		name: view.span,
		near: nearest(view.span, worker.spans.map((s) => s.name)),
		within: run.name
	};
	return {
		state: "chosen",
		chosen: {
			run,
			worker,
			span
		}
	};
}
/** Whether all recordings of a worker are shown together with another one: a SOL capture with its trace, memory with either. */
var isJoined = (w) => w.spans.length > 0 && w.spans.every((s) => JOINED_KINDS.includes(s.kind ?? "") && !!s.companion);
var JOINED_KINDS = [
	"sol_capture",
	"memory_snapshot",
	"memory_timeline"
];
/** At most eight of `names`, the likest first: fewest edits for their length, shared beginnings and parts preferred. */
function nearest(name, names) {
	const low = name.toLowerCase();
	const last = low.split("/").at(-1);
	const score = (other) => {
		const o = other.toLowerCase();
		const inside = o.includes(last) || low.includes(o.split("/").at(-1)) ? .4 : 0;
		return edits(low.slice(0, 120), o.slice(0, 120)) / Math.max(low.length, o.length, 1) - inside;
	};
	return names.map((n) => [score(n), n]).sort((a, b) => a[0] - b[0]).slice(0, 8).map(([, n]) => n);
}
function edits(a, b) {
	let before = Array.from({ length: b.length + 1 }, (_, i) => i);
	for (let i = 1; i <= a.length; i++) {
		const row = [i];
		for (let j = 1; j <= b.length; j++) row.push(Math.min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
		before = row;
	}
	return before[b.length];
}
/** Steps named in the address: "" all, "12" one, "12-15" a range. */
function parseSteps(text) {
	const match = /^(\d+)(?:-(\d+))?$/.exec(text);
	if (!match) return null;
	const from = Number(match[1]);
	return {
		from,
		to: match[2] === void 0 ? from : Number(match[2])
	};
}
/** In place of a recording of graph captures: nothing names what graphs replay. */
var NO_CAPTURE = "none";
/** What can be chosen for a trace: recordings of graph captures, then other traces, whose eager iterations may hold the same kernels. */
function captureOptions({ runs, captures = [] }, shown) {
	const files = new Set(captures);
	const traces = runs.flatMap((r) => r.workers.flatMap((w) => w.spans.filter((s) => s.kind === "kineto" && s.file && s.file !== shown && !files.has(s.file)).map((s) => s.file)));
	return [
		{
			value: "",
			text: "Beside the trace",
			note: "as found"
		},
		{
			value: NO_CAPTURE,
			text: "None",
			note: "kernels stay without operators"
		},
		...captures.map((file) => ({
			value: file,
			text: file,
			note: "graph capture"
		})),
		...traces.map((file) => ({
			value: file,
			text: file,
			note: "an eager run"
		}))
	];
}
// src/state/failures.ts
/** What helps, whatever the reason: the error is that of a Python module of the server. */
var REMEDY = "Install the Python package that the error names, reinstall `tb_sol_plugin`, or correct the module of the analysis; then restart the server. `tb-sol doctor` prints the same errors.";
/** The field `failed` of the catalog as a list, by name. */
var failuresOf = (failed = {}) => Object.entries(failed).map(([name, reason]) => ({
	name,
	reason
})).sort((a, b) => a.name < b.name ? -1 : 1);
var PREFIX = `p.sol.`;
/** Our pairs in `hash`; a malformed escape costs its own token only. */
function readHash(hash) {
	const out = {};
	for (const token of tokens$1(hash)) {
		const eq = token.indexOf("=");
		if (eq < 0) continue;
		try {
			const key = decodeURIComponent(token.slice(0, eq));
			if (key.startsWith(PREFIX)) out[key.slice(PREFIX.length)] = decodeURIComponent(token.slice(eq + 1));
		} catch {
			continue;
		}
	}
	return out;
}
/** The hash with our pairs replaced, our tab active, and everyone else's tokens kept in place. */
function writeHash(hash, pairs) {
	const keep = tokens$1(hash).filter((token) => token.includes("=") && !isOurs(token));
	const ours = Object.entries(pairs).map(([k, v]) => `${enc(PREFIX + k)}=${enc(v)}`);
	return "#" + [
		"sol",
		...keep,
		...ours
	].join("&");
}
/** The active tab, "" where none is named yet. */
var activeTab = (hash) => tokens$1(hash).find((token) => !token.includes("=")) ?? "";
var tokens$1 = (hash) => hash.replace(/^#/, "").split("&").filter(Boolean);
function isOurs(token) {
	try {
		return decodeURIComponent(token.slice(0, token.indexOf("="))).startsWith(PREFIX);
	} catch {
		return false;
	}
}
/** Percent escapes for everything the hash grammar minds; lone surrogates become U+FFFD, the rest of ASCII stays readable. */
function enc(text) {
	const whole = text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "�");
	return encodeURIComponent(whole).replace(/%(2C|2F|3A|2B)/g, (escape) => decodeURIComponent(escape));
}
// src/state/host.ts
var parentWindow = () => {
	if (inFile) return window;
	try {
		if (window.parent !== window && window.parent.location.hash !== void 0 && window.parent.document.body) return window.parent;
	} catch {
		return window;
	}
	return window;
};
var host = parentWindow();
/** True inside TensorBoard's frame. */
var hosted = host !== window;
/** Is our tab the active one? Outside TensorBoard always. An address without a tab counts as ours: the first visit. */
var active$1 = () => !hosted || ["", "sol"].includes(activeTab(host.location.hash));
function readAddress() {
	const found = readHash(host.location.hash);
	return Object.keys(found).length ? found : startPairs();
}
/** The full address that shows these pairs, for links and for copying. */
var addressOf$1 = (pairs) => {
	const { href, hash } = host.location;
	return href.slice(0, href.length - hash.length) + writeHash(hash, pairs);
};
var written$1 = "";
/** Writes our pairs. push adds a history entry; else the entry is replaced. False while another tab is active: the address is not ours then. */
function writeAddress(pairs, push) {
	if (hosted && activeTab(host.location.hash) !== "sol") return false;
	const hash = writeHash(host.location.hash, pairs);
	written$1 = hash;
	if (hash === host.location.hash) return true;
	if (host.location.protocol === "about:") return true;
	if (push) host.location.hash = hash;
	else host.history.replaceState(host.history.state, "", hash);
	return true;
}
/** Calls back when someone else changed the address while our tab is active, and when our tab becomes active. */
function onAddress(callback) {
	const listen = () => {
		if (!active$1() || host.location.hash === written$1) return;
		written$1 = host.location.hash;
		callback(readAddress());
	};
	host.addEventListener("hashchange", listen);
	window.addEventListener("pagehide", () => host.removeEventListener("hashchange", listen), { once: true });
}
/** Calls back with whether the page is visible: our tab active, the window not in the background. */
function onVisible(callback) {
	const tell = () => callback(active$1() && document.visibilityState === "visible");
	host.addEventListener("hashchange", tell);
	document.addEventListener("visibilitychange", tell);
	window.addEventListener("pagehide", () => host.removeEventListener("hashchange", tell), { once: true });
	tell();
}
/** px that a frame may grow to. */
var TALLEST = 2e4;
/** Makes the frame of a notebook's cell as high as what it shows, where the notebook lets the page reach it. */
function fitFrame(shown) {
	if (!alone) return;
	try {
		const frame = window.frameElement;
		if (!frame) return;
		const fit = () => {
			frame.style.height = `${Math.min(Math.ceil(shown.getBoundingClientRect().height), TALLEST)}px`;
		};
		new ResizeObserver(fit).observe(shown);
	} catch {
		return;
	}
}
/** Whether an element takes text: keys pressed in it are not ours. */
var typing = (target) => {
	const el = target;
	return !!el && (el.isContentEditable === true || [
		"INPUT",
		"TEXTAREA",
		"SELECT"
	].includes(el.tagName));
};
/** ms in which a letter after `g` opens a page. */
var LETTER_WITHIN = 1500;
var awaited = 0;
/** Says that the next letter opens a page, or that it has come. */
var awaitLetter = (on) => {
	awaited = on ? performance.now() + LETTER_WITHIN : 0;
};
/** Whether the next letter opens a page: no part of the page takes it. */
var letterAwaited = () => performance.now() < awaited;
/** Takes the keyboard from TensorBoard's document: while nobody types there, when our tab is shown; and on a press inside, which charts keep from moving it. */
function takeKeys() {
	if (!hosted) return;
	onVisible((visible) => {
		let at = host.document.activeElement;
		while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
		if (visible && !typing(at)) window.focus();
	});
	document.addEventListener("pointerdown", () => {
		if (!document.hasFocus()) window.focus();
	}, { capture: true });
}
/** The host's theme, now and on every change: TensorBoard's body class, else the browser's preference. */
function onDark(callback) {
	if (hosted) {
		const body = host.document.body;
		const tell = () => callback(body.classList.contains("dark-mode"));
		const watcher = new MutationObserver(tell);
		watcher.observe(body, {
			attributes: true,
			attributeFilter: ["class"]
		});
		window.addEventListener("pagehide", () => watcher.disconnect(), { once: true });
		tell();
		return;
	}
	const query = window.matchMedia("(prefers-color-scheme: dark)");
	query.addEventListener("change", () => callback(query.matches));
	callback(query.matches);
}
/** TensorBoard's reload button and timer. Every pushed message is answered, as the host waits for it. */
function onReload(callback) {
	if (inFile || window.parent === window) return;
	const { port1, port2 } = new MessageChannel();
	port1.onmessage = ({ data }) => {
		const { type, id, isReply } = JSON.parse(data);
		if (isReply) return;
		const reply = () => port1.postMessage(JSON.stringify({
			type,
			id,
			payload: null,
			error: null,
			isReply: true
		}));
		if (type === "experimental.DataReloaded") callback().finally(reply);
		else reply();
	};
	window.parent.postMessage("experimental.bootstrap", "*", [port2]);
}
// src/state/lists.ts
/** One string for a list of strings; the empty list is "", a list of one empty string is `\`. */
function joinList(items) {
	if (items.length === 1 && items[0] === "") return "\\";
	return items.map((item) => item.replace(/[\\,]/g, "\\$&")).join(",");
}
/** The list back from `joinList`; never throws. */
function splitList(text) {
	if (text === "") return [];
	if (text === "\\") return [""];
	const out = [];
	let item = "";
	for (let i = 0; i < text.length; i++) {
		const c = text[i];
		if (c === "\\" && i + 1 < text.length) item += text[++i];
		else if (c === ",") {
			out.push(item);
			item = "";
		} else item += c;
	}
	out.push(item);
	return out;
}
/** Ids with runs of neighboring whole numbers written as `3-7`: the short form of an opened tree. */
function joinIds(ids) {
	const whole = [...new Set(ids.filter((id) => /^(0|[1-9]\d{0,8})$/.test(id)))].map(Number).sort((a, b) => a - b);
	const other = [...new Set(ids.filter((id) => !/^(0|[1-9]\d{0,8})$/.test(id)))].sort();
	const parts = [];
	for (let i = 0; i < whole.length;) {
		let j = i;
		while (j + 1 < whole.length && whole[j + 1] === whole[j] + 1) j++;
		parts.push(j > i + 1 ? `${whole[i]}-${whole[j]}` : whole.slice(i, j + 1).join(","));
		i = j + 1;
	}
	const named = other.map((id) => /^\d+-\d+$/.test(id) ? "\\" + id : id.replace(/[\\,]/g, "\\$&"));
	return [...parts, ...named].join(",");
}
/** The ids back from `joinIds`; a run longer than 100 000 is not believed. */
function splitIds(text) {
	if (text === "") return [];
	const out = [];
	for (const raw of text.match(/(?:\\.|[^\\,])+/gs) ?? []) {
		const run = /^(\d{1,9})-(\d{1,9})$/.exec(raw);
		if (run && Number(run[2]) >= Number(run[1]) && Number(run[2]) - Number(run[1]) <= 1e5) for (let i = Number(run[1]); i <= Number(run[2]); i++) out.push(String(i));
		else out.push(raw.replace(/\\(.)/gs, "$1"));
	}
	return out;
}
// src/state/codec.ts
var HOME = "overview";
var VERSION = "1";
var ID = /^[A-Za-z0-9_-]{1,80}$/;
var PLAIN$1 = [
	"page",
	"run",
	"worker",
	"span",
	"step",
	"capture",
	"device",
	"base",
	"base_worker",
	"base_span",
	"find"
];
var TIMELINE_KEYS = [
	"t",
	"ev",
	"area",
	"pin",
	"hide",
	"open",
	"lay",
	"al",
	"q",
	"mk",
	"cp",
	"y"
];
/** No baseline is chosen. */
var NO_BASE = {
	base: "",
	base_worker: "",
	base_span: ""
};
var emptyTable = () => ({
	sort: null,
	find: "",
	keep: {},
	ranges: {},
	columns: {},
	opened: {
		base: "d",
		ids: []
	},
	row: ""
});
var emptyView = () => ({
	page: HOME,
	run: "",
	worker: "",
	span: "",
	step: "",
	capture: "",
	device: "",
	...NO_BASE,
	find: "",
	query: {},
	tables: {},
	figures: {},
	timeline: {}
});
/** The pairs of a view, in a fixed order, without what is at its default. */
function encode(view) {
	const out = {};
	for (const name of PLAIN$1) if (view[name] !== "" && !(name === "page" && view.page === "overview")) out[name] = view[name];
	for (const [name, value] of sorted(view.query)) if (value !== "") out[`q.${name}`] = value;
	for (const [id, table] of sorted(view.tables)) Object.assign(out, encodeTable(id, table));
	for (const [id, zoom] of sorted(view.figures)) if (zoom) out[`f.${id}`] = zoom;
	for (const key of TIMELINE_KEYS) if (view.timeline[key]) out[key] = view.timeline[key];
	return Object.keys(out).length ? {
		v: VERSION,
		...out
	} : out;
}
/** The view of some pairs: unknown keys are ignored, bad values dropped one by one, never an error. */
function decode(pairs) {
	const view = emptyView();
	if (pairs["v"] !== void 0 && pairs["v"] !== VERSION) return view;
	for (const name of PLAIN$1) if (pairs[name]) view[name] = pairs[name];
	if (!ID.test(view.page)) view.page = HOME;
	for (const key of TIMELINE_KEYS) if (pairs[key]) view.timeline[key] = pairs[key];
	for (const [key, value] of Object.entries(pairs)) {
		const [head, id, field, ...rest] = key.split(".");
		if (value === "" || id === void 0 || !ID.test(id)) continue;
		if (head === "q" && field === void 0) view.query[id] = value;
		else if (head === "f" && field === void 0) view.figures[id] = value;
		else if (head === "t" && field !== void 0 && id !== "__proto__") {
			if (!Object.hasOwn(view.tables, id)) view.tables[id] = emptyTable();
			decodeTable(view.tables[id], field, rest.join("."), value);
		}
	}
	for (const [id, table] of Object.entries(view.tables)) if (!Object.keys(encodeTable(id, table)).length) delete view.tables[id];
	return view;
}
function encodeTable(id, table) {
	const out = {};
	const at = `t.${id}.`;
	if (table.sort) out[`${at}s`] = (table.sort.descending ? "-" : "+") + table.sort.column;
	if (table.find) out[`${at}f`] = table.find;
	for (const [column, values] of sorted(table.keep)) if (values.length) out[`${at}c.${column}`] = joinList([...values].sort());
	for (const [column, range] of sorted(table.ranges)) if (column && rangeText(range)) out[`${at}n.${column}`] = rangeText(range);
	const columns = sorted(table.columns).map(([name, shown]) => (shown ? "+" : "-") + name);
	if (columns.length) out[`${at}h`] = joinList(columns);
	if (table.opened.base !== "d" || table.opened.ids.length) out[`${at}x`] = table.opened.base + joinIds(table.opened.ids);
	if (table.row) out[`${at}k`] = table.row;
	return out;
}
function decodeTable(table, field, rest, value) {
	if (field === "c" && rest) table.keep[rest] = splitList(value);
	else if (field === "n" && rest) {
		const range = readRange(value);
		if (range) table.ranges[rest] = range;
	} else if (rest) return;
	else if (field === "s" && /^[+-]./s.test(value)) table.sort = {
		column: value.slice(1),
		descending: value[0] === "-"
	};
	else if (field === "f") table.find = value;
	else if (field === "k") table.row = value;
	else if (field === "x" && /^[dan]/.test(value)) table.opened = {
		base: value[0],
		ids: splitIds(value.slice(1))
	};
	else if (field === "h") {
		for (const item of splitList(value)) if (/^[+-]./s.test(item)) table.columns[item.slice(1)] = item[0] === "+";
	}
}
var rangeText = ({ above, below }) => above === null && below === null ? "" : `${above ?? ""}~${below ?? ""}`;
function readRange(text) {
	const [low, high, ...more] = text.split("~");
	const ends = [low, high].map((t) => t ? Number(t) : null);
	if (high === void 0 || more.length || ends.every((e) => e === null) || ends.some((e) => e !== null && !Number.isFinite(e))) return null;
	return {
		above: ends[0],
		below: ends[1]
	};
}
var sorted = (record) => Object.entries(record).sort(([a], [b]) => a < b ? -1 : a > b ? 1 : 0);
/** Two views are the same if their addresses are. */
var sameView = (a, b) => JSON.stringify(encode(a)) === JSON.stringify(encode(b));
// src/state/view.ts
var view = y$1(decode(readAddress()));
var page = O(() => view.value.page);
var waiting = 0;
var owed = false;
/** Makes `next` the view and the address. */
function go(next, how) {
	if (sameView(next, view.value)) return;
	if (how === "push") flush();
	view.value = next;
	window.clearTimeout(waiting);
	if (how === "replace") waiting = window.setTimeout(flush, 300);
	else write(how === "push");
	owed = owed || how === "replace";
}
function flush() {
	window.clearTimeout(waiting);
	if (owed) write(false);
}
function write(push) {
	owed = !writeAddress(encode(view.value), push);
}
var change = (part, how) => go({
	...view.value,
	...part
}, how);
/** Starts following the address: back, forward, edits by hand, links of other tabs. */
function followAddress() {
	onAddress((pairs) => {
		if (owed && !Object.keys(pairs).length) return flush();
		window.clearTimeout(waiting);
		owed = false;
		const next = decode(pairs);
		if (!sameView(next, view.value)) view.value = next;
	});
}
var tableOf = (id) => Object.hasOwn(view.value.tables, id) ? view.value.tables[id] : emptyTable();
function changeTable(id, part, how) {
	change({ tables: {
		...view.value.tables,
		[id]: {
			...tableOf(id),
			...part
		}
	} }, how);
}
function changeFigure(id, text, how = "replace") {
	change({ figures: {
		...view.value.figures,
		[id]: text
	} }, how);
}
function changeTimeline(part, how) {
	change({ timeline: {
		...view.value.timeline,
		...part
	} }, how);
}
/** Another page of the same selection. */
function pageView(name) {
	const { run, worker, span, step, capture, device, base, base_worker, base_span } = view.value;
	return {
		...emptyView(),
		page: name,
		run,
		worker,
		span,
		step,
		capture,
		device,
		base,
		base_worker,
		base_span
	};
}
/**
* What a link of a report leads to. `find` filters the main table; step, device_limits, run, worker and span change the selection;
* keys of the address that begin with `t.` or `f.` set a table or a figure, those of the timeline its window, event and rows.
*/
function linkView(link) {
	const { find = "", step, device_limits: device, run, worker, span, ...rest } = link.query ?? {};
	const placed = (key) => /^[tf]\./.test(key) || link.analysis === "timeline" && TIMELINE_KEYS.includes(key);
	const query = Object.fromEntries(Object.entries(rest).filter(([key]) => !placed(key)));
	const { tables, figures, timeline } = decode(Object.fromEntries(Object.entries(rest).filter(([key]) => placed(key))));
	const next = {
		...pageView(link.analysis || "overview"),
		find,
		query,
		tables,
		figures,
		timeline
	};
	const other = run !== void 0 && run !== next.run;
	if (run !== void 0 || worker !== void 0 || span !== void 0) Object.assign(next, NO_BASE);
	if (other) Object.assign(next, {
		run,
		worker: "",
		span: "",
		step: "",
		capture: ""
	});
	if (worker !== void 0) Object.assign(next, {
		worker,
		span: ""
	});
	if (span !== void 0) next.span = span;
	if (step !== void 0) next.step = step;
	if (device !== void 0) next.device = device;
	return next;
}
var addressOf = (next) => addressOf$1(encode(next));
var here = () => addressOf(view.value);
// src/state/data.ts
var idle = () => ({
	key: "",
	state: "idle",
	value: null,
	of: "",
	error: null,
	progress: null,
	since: 0
});
var runs = y$1(idle());
var pages = y$1(idle());
var report = y$1(idle());
var catalog = y$1([]);
/** Analyses that the server could not load. */
var failures = y$1([]);
var visible$1 = y$1(true);
var attempt = y$1(0);
var choice = O(() => runs.value.value ? choose$1(runs.value.value, view.value) : null);
var chosen$3 = O(() => choice.value?.state === "chosen" ? choice.value.chosen : null);
var where = O(() => {
	const c = chosen$3.value;
	return c ? {
		run: c.run.name,
		worker: c.worker.name,
		span: c.span.name,
		...view.value.capture && { capture: view.value.capture }
	} : null;
});
var whereKey = O(() => where.value ? JSON.stringify([
	where.value.run,
	where.value.worker,
	where.value.span,
	where.value.capture,
	view.value.device,
	attempt.value
]) : "");
var info = O(() => pages.value.value?.analyses.find((a) => a.name === page.value) ?? catalog.value.find((a) => a.name === page.value) ?? null);
/** Why the present page cannot be computed of any recording: its analysis could not be loaded. */
var failure = O(() => failures.value.find((f) => f.name === page.value) ?? null);
/** The present page answers without a recording. */
var needsNoRecording = O(() => info.value?.alone === true);
/** The key of the chosen recording once it is read: its report can be requested. */
var readyKey = O(() => pages.value.state === "ready" && pages.value.key === whereKey.value ? whereKey.value : "");
/** Query values that the page starts with where they differ from those of a script. */
var pageDefaults = O(() => {
	const fields = info.value?.fields ?? [];
	return Object.fromEntries(fields.filter((f) => f.page !== void 0 && f.page !== f.default).map((f) => [f.name, f.page]));
});
/** The baseline that the present page is set against, none where it takes none. */
var baseline = O(() => {
	const { base, base_worker, base_span } = view.value;
	return info.value?.compares && (base || base_worker || base_span) ? {
		base,
		base_worker,
		base_span
	} : {};
});
var query = O(() => ({
	...pageDefaults.value,
	...view.value.query,
	...view.value.step && { step: view.value.step },
	...view.value.device && { device_limits: view.value.device },
	...baseline.value
}));
/** Whether the report is requested without a recording: it needs none, and none is chosen, or the chosen one is still being read or cannot be. */
var askWithoutRecording = O(() => needsNoRecording.value && (!!runs.value.value || runs.value.state === "error") && !(whereKey.value && ["idle", "waiting"].includes(pages.value.state)));
var reportKey = O(() => !failure.value && (readyKey.value || askWithoutRecording.value) ? JSON.stringify([
	page.value,
	readyKey.value || attempt.value,
	query.value
]) : "");
/** When the shown recording was read, and whether its file has changed since. */
var stamp = y$1("");
var stale = O(() => {
	const span = chosen$3.value?.span;
	return !!span && stamp.value !== "" && stamp.value !== `${span.file ?? span.name}:${span.size}:${span.mtime}` && stamp.value.startsWith(`${span.file ?? span.name}:`);
});
var OTHERS = 6;
/** ms after a change of a field until the report is requested: a slider passes many values on its way. */
var SETTLES$4 = 90;
/** Runs that have data for a page. Requests at most six, whose recordings have been read already. */
async function runsWith(name) {
	const shown = where.peek();
	const ask = (runs.peek().value?.runs ?? []).flatMap((r) => r.workers.slice(0, 1).flatMap((w) => w.spans.slice(-1).map((s) => ({
		run: r.name,
		worker: w.name,
		span: s.name,
		ready: s.state === "ready"
	})))).filter((r) => r.ready && r.run !== shown?.run).slice(0, OTHERS);
	return (await Promise.all(ask.map(async ({ run, worker, span }) => {
		try {
			const { analyses } = await getAnalyses({
				run,
				worker,
				span
			});
			return analyses.some((a) => a.name === name && a.available !== false) ? [{
				run,
				worker,
				span
			}] : [];
		} catch (error) {
			if (error instanceof ApiError) return [];
			throw error;
		}
	}))).flat();
}
/** Requests everything about the shown recording again. */
function readAgain() {
	remembered.clear();
	r(() => {
		attempt.value++;
		stamp.value = "";
	});
}
var remembered = /* @__PURE__ */ new Map();
var requests = /* @__PURE__ */ new WeakMap();
/** Remembers what a report was requested with. */
var noteRequest = (value, request) => void requests.set(value, request);
var requestOf = (value) => requests.get(value) ?? null;
/** The query fields of the last report of a page with a card of fields; where its first report failed, those of the report at its defaults. */
var lastFields = y$1({
	page: "",
	fields: {}
});
x$1(() => {
	const value = report.value.value;
	if (value?.available) lastFields.value = {
		page: value.analysis,
		fields: value.fields ?? {}
	};
});
/** Requests the report at the defaults of a page whose first request failed, for its fields. */
async function fetchDefaultFields(name, w) {
	if (lastFields.peek().page === name || !info.peek()?.fields?.some((f) => f.group)) return;
	try {
		const value = await getReport(name, w, pageDefaults.peek());
		if (value.available) lastFields.value = {
			page: name,
			fields: value.fields ?? {}
		};
	} catch (error) {
		if (!(error instanceof ApiError)) throw error;
	}
}
function pause(ms, signal) {
	return new Promise((done) => {
		const timer = window.setTimeout(done, ms);
		signal.addEventListener("abort", () => {
			window.clearTimeout(timer);
			done();
		}, { once: true });
	});
}
async function untilVisible(signal) {
	while (!visible$1.peek() && !signal.aborted) await pause(400, signal);
}
/** Whether a report covers only some of the workers of a run, as the others are still being read. */
var unfinished = (value) => !!value?.reading;
/** Requests until the answer is final, and stores progress and early answers in the meantime. */
async function poll(slot, key, ask, stop) {
	slot.value = {
		...slot.peek(),
		key,
		state: "waiting",
		error: null,
		progress: null,
		since: performance.now()
	};
	for (let again = false; !stop.aborted; again = true) {
		await untilVisible(stop);
		try {
			const value = await ask(stop, again);
			if (stop.aborted) return null;
			slot.value = {
				...slot.peek(),
				key,
				of: key,
				state: "ready",
				value,
				progress: null
			};
			if (!unfinished(value)) return value;
			await pause(600, stop);
		} catch (error) {
			if (stop.aborted) return null;
			if (!(error instanceof ApiError)) throw error;
			if (!error.loading) {
				slot.value = {
					...slot.peek(),
					key,
					state: "error",
					error,
					progress: null
				};
				return null;
			}
			slot.value = {
				...slot.peek(),
				key,
				state: "loading",
				error,
				progress: error.progress
			};
			await pause(150, stop);
		}
	}
	return null;
}
/** Reads the list of runs once more; the page keeps what it shows. */
async function refreshRuns() {
	try {
		const value = await getRuns();
		runs.value = {
			...runs.peek(),
			key: "runs",
			of: "runs",
			state: "ready",
			value,
			error: null
		};
	} catch (error) {
		if (!(error instanceof ApiError)) throw error;
		runs.value = {
			...runs.peek(),
			key: "runs",
			state: "error",
			error
		};
	}
}
/** TensorBoard's reload, or the button: look for new files, then read the list. */
async function rescan() {
	try {
		await postRescan();
	} catch (error) {
		if (!(error instanceof ApiError)) throw error;
	}
	for (let i = 0; i < 40; i++) {
		await refreshRuns();
		if (runs.peek().value?.scan.state !== "scanning") return;
		await new Promise((done) => window.setTimeout(done, 250));
	}
}
var stopPages = new AbortController();
/** Stops reading the chosen recording, and polling for it: the next request would start it again. */
async function cancel() {
	const w = where.peek();
	if (!w) return;
	stopPages.abort();
	const error = new ApiError({
		code: "stopped",
		message: "The recording was not read to its end.",
		hint: "Nothing was kept of it. It can be read again at any time."
	}, 0);
	pages.value = {
		...pages.peek(),
		state: "error",
		error,
		progress: null
	};
	await postCancel(w).catch(() => void 0);
}
async function pollRuns() {
	const never = new AbortController().signal;
	runs.value = {
		...idle(),
		key: "runs",
		state: "waiting",
		since: performance.now()
	};
	for (;;) {
		await untilVisible(never);
		await refreshRuns();
		const now = runs.peek();
		if (now.state === "error" || inFile) return;
		const scanning = now.value.scan.state === "scanning";
		const reading = pages.peek().state === "loading";
		const empty = !now.value.runs.length;
		await pause(scanning ? 500 : reading ? 1e3 : empty ? 4e3 : 1e4, never);
	}
}
/** Starts all requests of the page. Called once. */
function startData() {
	onVisible((now) => {
		visible$1.value = now;
	});
	pollRuns();
	getAnalyses(null).then((all) => r(() => {
		catalog.value = all.analyses;
		failures.value = failuresOf(all.failed);
	}), () => void 0);
	x$1(() => {
		const key = whereKey.value;
		stopPages.abort();
		if (!key) return;
		stopPages = new AbortController();
		const w = where.peek();
		const span = chosen$3.peek().span;
		const device = view.peek().device;
		poll(pages, key, (s, again) => getAnalyses(w, device, s, again ? "0.8" : ""), stopPages.signal).then((value) => {
			if (!value) return;
			catalog.value = value.analyses;
			stamp.value = `${span.file ?? span.name}:${span.size}:${span.mtime}`;
		});
	});
	let stopReport = new AbortController();
	const leave = () => {
		const { state, value } = report.peek();
		if (!stopReport.signal.aborted && (state === "loading" || state === "ready" && unfinished(value))) postLeave();
	};
	window.addEventListener("pagehide", leave);
	x$1(() => {
		const key = reportKey.value;
		leave();
		stopReport.abort();
		if (!key) return;
		stopReport = new AbortController();
		const known = remembered.get(key);
		if (known) {
			report.value = {
				...idle(),
				key,
				of: key,
				state: "ready",
				value: known
			};
			return;
		}
		const [name, w, q] = [
			page.peek(),
			readyKey.peek() ? where.peek() : null,
			query.peek()
		];
		const moved = report.peek().value?.analysis === name && info.peek()?.fields?.some((f) => f.group);
		const ask = async (s) => {
			if (moved) await pause(SETTLES$4, s);
			const value = await getReport(name, w, q, s);
			noteRequest(value, {
				name,
				where: w,
				query: q
			});
			return value;
		};
		poll(report, key, ask, stopReport.signal).then((value) => {
			if (!value) return void (report.peek().state === "error" && report.peek().key === key && fetchDefaultFields(name, w));
			if (!value.available || !value.provisional) remembered.set(key, value);
			if (remembered.size > 12) remembered.delete(remembered.keys().next().value);
		});
	});
	x$1(() => {
		const c = chosen$3.value;
		if (!c) return;
		const full = {
			run: c.run.name,
			worker: c.run.workers.length > 1 ? c.worker.name : view.peek().worker,
			span: c.worker.spans.length > 1 ? c.span.name : view.peek().span
		};
		if (full.run !== view.peek().run || full.worker !== view.peek().worker || full.span !== view.peek().span) change(full, "quiet");
	});
}
// src/sections/figure/plotly.ts
/** Kinds of traces in the custom bundle (frontend/plotly/entry.js). */
var USUAL$1 = /* @__PURE__ */ new Set([
	"scatter",
	"bar",
	"heatmap",
	"icicle",
	void 0
]);
var CUSTOM = {
	src: "vendor/plotly-custom.min.js",
	found: () => window.TbSolPlotly?.default
};
var WHOLE$1 = {
	src: "vendor/plotly.min.js",
	found: () => window.Plotly
};
function load(script) {
	script.loading ??= new Promise((done, failed) => {
		const there = script.found();
		if (there) return done(there);
		const tag = document.createElement("script");
		tag.src = script.src;
		tag.onload = () => {
			const found = script.found();
			if (found) done(found);
			else failed(/* @__PURE__ */ new Error(`${script.src} is not Plotly`));
		};
		tag.onerror = () => {
			script.loading = void 0;
			tag.remove();
			failed(/* @__PURE__ */ new Error(`Charts cannot be drawn: ${script.src} could not be read. The tables hold the same numbers.`));
		};
		document.head.append(tag);
	});
	return script.loading;
}
/** Asks for Plotly before the first figure needs it. A failure is shown where a figure is drawn, not here. */
function preload() {
	load(CUSTOM).catch(() => void 0);
}
/** The script that can draw these traces. */
function scriptOf(data) {
	return data.every((trace) => USUAL$1.has(trace.type)) ? CUSTOM : WHOLE$1;
}
/** Which Plotly drew an element: the one that must redraw and purge it. */
var drawnBy = /* @__PURE__ */ new WeakMap();
var CONFIG = {
	displayModeBar: false,
	responsive: false,
	showTips: false,
	scrollZoom: false,
	showAxisDragHandles: false
};
/** Draws or redraws; resolves when drawn. */
async function draw(el, data, layout, doubleClick = "reset") {
	const [script, before] = [scriptOf(data), drawnBy.get(el)];
	const plotly = await load(script);
	if (before && before !== script) (await load(before)).purge(el);
	drawnBy.set(el, script);
	return plotly.react(el, data, layout, {
		...CONFIG,
		doubleClick
	});
}
async function resize(el) {
	const script = drawnBy.get(el);
	if (!script || !el.offsetWidth || !el.classList.contains("js-plotly-plot")) return;
	await (await load(script)).Plots.resize(el);
}
async function purge(el) {
	const script = drawnBy.get(el);
	if (script) (await load(script)).purge(el);
}
/** Whether two boxes share more than their edges. */
function overlap(a, b) {
	return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
}
/** px² that two boxes share. */
function sharedArea(a, b) {
	return Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
}
/** px between a hover box and a card. */
var APART$1 = 6;
/** How far a box must move to clear a card and stay inside a room: the shortest way, across or up and down; null where no way is left. */
function wayOff(box, card, room) {
	if (!overlap(box, card)) return {
		x: 0,
		y: 0
	};
	const ways = [
		{
			x: card.left - APART$1 - box.right,
			y: 0
		},
		{
			x: card.right + APART$1 - box.left,
			y: 0
		},
		{
			x: 0,
			y: card.top - APART$1 - box.bottom
		},
		{
			x: 0,
			y: card.bottom + APART$1 - box.top
		}
	];
	const inside = ({ x, y }) => box.left + x >= room.left && box.right + x <= room.right && box.top + y >= room.top && box.bottom + y <= room.bottom;
	return ways.filter(inside).sort((a, b) => Math.abs(a.x + a.y) - Math.abs(b.x + b.y))[0] ?? null;
}
/** Moves the hover boxes of a figure off a card that stands in it; one that has no place beside the card is not shown. */
function keepOff(el, card) {
	if (!card) return;
	const [over, room] = [card.getBoundingClientRect(), el.getBoundingClientRect()];
	for (const label of el.querySelectorAll(".hoverlayer .hovertext")) {
		label.style.translate = "";
		const way = wayOff(label.getBoundingClientRect(), over, room);
		label.style.visibility = way ? "" : "hidden";
		if (way) label.style.translate = `${way.x}px ${way.y}px`;
	}
}
/** Labels that are shown whatever is behind them: the highest roof and the program's own point. */
var ALWAYS = 2;
/** px² of points behind a label up to which it can be read. */
var READABLE$1 = 90;
/** px of a mark that is no point of data: where lines meet. */
var DOT = 7;
/** Hides labels that a more important one, earlier in the list, or points leave no room for: the server placed them for a usual width. */
function hideCollisions(el) {
	const kept = [];
	const points = [...el.querySelectorAll(".scatterlayer .points path")].map((p) => p.getBoundingClientRect()).filter((b) => b.width > DOT);
	el.querySelectorAll(".annotation").forEach((label, i) => {
		label.style.visibility = "";
		const box = label.getBoundingClientRect();
		const turned = /rotate\(-?(?!0[,)])\d/.test(label.querySelector(".annotation-text-g")?.getAttribute("transform") ?? "");
		if ((i < ALWAYS || turned ? 0 : points.reduce((sum, p) => sum + sharedArea(p, box), 0)) > READABLE$1 || kept.some((k) => overlap(k, box))) label.style.visibility = "hidden";
		else kept.push(box);
	});
}
/** Pixels of a place in data units inside a drawn figure; null where its axes are not drawn. */
function placeOf$3(el, axes, x, y) {
	const layout = el._fullLayout;
	const [across, up] = [layout?.[`xaxis${axes}`], layout?.[`yaxis${axes}`]];
	if (!across || !up) return null;
	const [left, top] = [across._offset + across.l2p(across.d2l(x)), up._offset + up.l2p(up.d2l(y))];
	return Number.isFinite(left) && Number.isFinite(top) ? {
		x: left,
		y: top
	} : null;
}
/** How near, in pixels, a click must be to a point to mean the point itself. */
var SNAP$1 = 6;
/** Where on the x axis a click means: the nearest point's place where it is near, else the place itself; with the axis' length. */
function clickedAt(el, event) {
	const axis = el._fullLayout?.["xaxis"];
	if (!axis || !event.event) return null;
	const pixel = event.event.clientX - el.getBoundingClientRect().left - axis._offset;
	return {
		x: event.points.map((p) => p.x).find((x) => typeof x === "number" && Math.abs(axis.l2p(x) - pixel) <= SNAP$1) ?? axis.p2l(pixel),
		width: axis.range[1] - axis.range[0]
	};
}
/** The figure as a picture, on a ground of `background`. */
async function picture(data, layout, format, background, width, height) {
	return (await load(scriptOf(data))).toImage({
		data,
		layout: {
			...layout,
			width,
			height,
			paper_bgcolor: background
		}
	}, {
		format,
		width,
		height,
		scale: format === "png" ? 2 : 1
	});
}
var palette_default = {
	tokens: {
		"bg": ["#F6F7F9", "#0F1216"],
		"surface": ["#FFFFFF", "#161A20"],
		"sunken": ["#F1F3F6", "#1C2128"],
		"line": ["#E3E7ED", "#272D36"],
		"line-strong": ["#CDD4DE", "#3A424E"],
		"ink": ["#14181F", "#E8EBEF"],
		"ink-2": ["#48525F", "#B4BCC8"],
		"ink-3": ["#626D7C", "#939DAB"],
		"bar-ink": ["#3C4A5E", "#A9B7CA"],
		"accent": ["#4A3FC4", "#ABA5FF"],
		"accent-bg": ["#EEEDFB", "#25243F"],
		"accent-line": ["#C5C0F0", "#48458A"],
		"warn": ["#8A5300", "#F0BC62"],
		"error": ["#B3261E", "#FF8F85"],
		"compute": ["#0E67C1", "#53A7F5"],
		"communication": ["#E48330", "#F5A544"],
		"memcpy": ["#8A1257", "#F04FB4"],
		"memset": ["#DBA3BC", "#8B4E6C"],
		"host": ["#7C838C", "#7F8792"],
		"idle": ["#E2E6EA", "#2A3038"],
		"idle-hatch": ["#B4BECA", "#5C6878"],
		"gemm": ["#0E67C1", "#53A7F5"],
		"attention": ["#14A88C", "#4FC5B3"],
		"conv": ["#6A3160", "#A766C4"],
		"norm": ["#E3A70F", "#FECA55"],
		"elementwise": ["#8BCFF6", "#B4E4F9"],
		"other": ["#757B84", "#868E99"],
		"HtoD": ["#8A1257", "#F04FB4"],
		"DtoH": ["#D65A9A", "#F3A6D2"],
		"DtoD": ["#3B7F96", "#5FB4CC"],
		"Memset": ["#DBA3BC", "#8B4E6C"],
		"bound-compute": ["#0B57A4", "#7DBCF7"],
		"bound-memory": ["#8A5301", "#F0BC62"],
		"eff-0": ["#B8471A", "#E4673A"],
		"eff-25": ["#E08E4F", "#C9813F"],
		"eff-50": ["#F3D3A8", "#8C7A5C"],
		"eff-75": ["#C9DCEA", "#4D6A88"],
		"eff-100": ["#7FB2DB", "#3F7FB8"]
	},
	marks: {
		"gemm": "circle",
		"attention": "diamond",
		"conv": "square",
		"norm": "triangle-up",
		"elementwise": "cross",
		"other": "x",
		"HtoD": "triangle-up",
		"DtoH": "triangle-down",
		"DtoD": "circle",
		"Memset": "square"
	}
};
// src/ui/members.ts
/** Colors and marks with a fixed meaning: of kinds of work, and of directions of copies. */
var TOKENS$2 = palette_default.tokens;
var MARKS = palette_default.marks;
/** Directions that look like a color of another name. */
var SAME = {
	PtoP: "communication",
	"copy kernel": "DtoD"
};
/** `var(--gemm)` for a member of the palette; `other` for a name that is not in it. */
var paint = (name) => `var(--${name && Object.hasOwn(TOKENS$2, name) ? name : name && Object.hasOwn(SAME, name) ? SAME[name] : "other"})`;
/** The mark of a kind or a direction, as figures draw it; none for other names. */
var markOf$1 = (name) => Object.hasOwn(MARKS, name) ? MARKS[name] : Object.hasOwn(SAME, name) ? MARKS["other"] : void 0;
// src/ui/theme.ts
var TOKENS$1 = palette_default.tokens;
/** Surfaces and shadows that only the page needs; figures never use them. */
var MORE = {
	raised: ["#FFFFFF", "#1F252D"],
	"on-accent": ["#FFFFFF", "#14122B"],
	"warn-bg": ["#FDF3E0", "#2B2415"],
	"warn-line": ["#EFD3A0", "#57461F"],
	"error-bg": ["#FCEDEB", "#2E1B1B"],
	"error-line": ["#EDB9B5", "#5C2D2B"],
	"card-shadow": ["0 1px 2px rgb(20 24 31 / 4%)", "none"],
	float: ["0 8px 28px rgb(20 24 31 / 16%)", "0 8px 28px rgb(0 0 0 / 55%)"]
};
var STORE = "tb-sol.theme";
var hostDark = y$1(false);
var chosenTheme = y$1(hosted ? "" : kept$1());
/** The choice of an earlier visit. A frame, or a file, may not be allowed to keep any. */
function kept$1() {
	try {
		return localStorage.getItem(STORE) ?? "";
	} catch {
		return "";
	}
}
function keep(theme) {
	try {
		localStorage.setItem(STORE, theme);
	} catch {
		return;
	}
}
var dark = O(() => chosenTheme.value ? chosenTheme.value === "dark" : hostDark.value);
/** Outside TensorBoard only: the reader's choice, kept for the next visit. */
function toggleTheme() {
	chosenTheme.value = dark.value ? "light" : "dark";
	keep(chosenTheme.value);
}
var token = (name) => (TOKENS$1[name] ?? MORE[name] ?? TOKENS$1["other"])[dark.value ? 1 : 0];
/** Fills too light for a 3:1 edge on a light surface; they get an outline. */
var PALE = /* @__PURE__ */ new Set([
	"memset",
	"norm",
	"elementwise",
	"Memset",
	"idle"
]);
var partner = /* @__PURE__ */ new Map();
for (const [light, darkHex] of Object.values(TOKENS$1)) if (!partner.has(light.toUpperCase())) partner.set(light.toUpperCase(), darkHex);
/** The color to draw for a light hex of the palette in the present theme; anything else stays. */
var themed = (value) => dark.value ? partner.get(value.toUpperCase()) ?? value : value;
function rules(which) {
	return [...Object.entries(TOKENS$1), ...Object.entries(MORE)].map(([name, pair]) => `--${name}:${pair[which]}`).join(";");
}
/** Writes the variables and keeps the theme attribute right. */
function startTheme() {
	const sheet = document.createElement("style");
	sheet.textContent = `:root{${rules(0)};color-scheme:light}:root[data-theme="dark"]{${rules(1)};color-scheme:dark}`;
	document.head.append(sheet);
	onDark((now) => {
		hostDark.value = now;
	});
	x$1(() => {
		document.documentElement.dataset["theme"] = dark.value ? "dark" : "light";
	});
}
// node_modules/preact/jsx-runtime/dist/jsxRuntime.mjs
var f = Symbol.for("pv");
var o = 0;
Array.isArray;
function a(t, e, n, u, a, i) {
	e || (e = {});
	var c, l, p = e;
	if ("ref" in p && "function" != typeof t) for (l in p = {}, e) "ref" == l ? c = e[l] : p[l] = e[l];
	var s = {
		type: t,
		props: p,
		key: n,
		ref: c,
		__k: null,
		__: null,
		__b: 0,
		__e: null,
		__c: null,
		constructor: f,
		__v: --o,
		__i: -1,
		__u: 0
	};
	return (a || i) && (s.__source = a, s.__self = i), n$1.vnode && n$1.vnode(s), s;
}
// src/ui/tip.tsx
var now = y$1(null);
var timer = 0;
/** Letters from which on a hint is wider: a long name shows whole, whatever the window. */
var WIDE_FROM = 400;
function owner(target) {
	return target instanceof Element ? target.closest("[data-tip]") : null;
}
/** Keeps a hint beside what it is of, which moves with the page, and hides it once neither the pointer nor the focus is there. */
function follow() {
	const tip = now.value;
	if (!tip) return;
	const text = tip.at.dataset["tip"];
	if (!text || !tip.at.isConnected || !tip.at.matches(":hover, :focus-within")) {
		now.value = null;
		return;
	}
	const box = tip.at.getBoundingClientRect();
	if (text !== tip.text || box.left !== tip.box.left || box.top !== tip.box.top || box.bottom !== tip.box.bottom) now.value = {
		at: tip.at,
		text,
		box
	};
	window.requestAnimationFrame(follow);
}
function startTips() {
	const show = (event, wait) => {
		const at = owner(event.target);
		window.clearTimeout(timer);
		const text = at?.dataset["tip"];
		if (!at || !text) {
			now.value = null;
			return;
		}
		timer = window.setTimeout(() => {
			if (!at.isConnected) return;
			if (!now.value) window.requestAnimationFrame(follow);
			now.value = {
				at,
				text,
				box: at.getBoundingClientRect()
			};
		}, wait);
	};
	document.addEventListener("mouseover", (e) => show(e, 280));
	document.addEventListener("focusin", (e) => show(e, 500));
	const hide = () => {
		window.clearTimeout(timer);
		now.value = null;
	};
	document.addEventListener("mousedown", hide);
	document.addEventListener("focusout", hide);
	document.addEventListener("scroll", hide, {
		capture: true,
		passive: true
	});
	document.addEventListener("keydown", (e) => {
		if (e.key === "Escape") hide();
	});
}
function Tip() {
	const ref = T$1(null);
	const tip = now.value;
	F$1(() => {
		const el = ref.current;
		if (!el || !tip) return;
		el.style.left = "0";
		const { width, height } = el.getBoundingClientRect();
		const below = tip.box.bottom + 6 + height < window.innerHeight;
		el.style.left = `${Math.max(8, Math.min(tip.box.left, window.innerWidth - width - 8))}px`;
		el.style.top = `${below ? tip.box.bottom + 6 : Math.max(4, tip.box.top - height - 6)}px`;
	}, [tip]);
	return /* @__PURE__ */ a("div", {
		"aria-live": "polite",
		children: tip && /* @__PURE__ */ a("div", {
			class: `tip ${tip.text.length > WIDE_FROM ? "wide" : ""}`,
			role: "tooltip",
			ref,
			children: tip.text
		})
	});
}
// src/ui/icons.tsx
var PATHS = {
	overview: "M2.5 12a5.5 5.5 0 1 1 11 0 M8 12l2.6-3.4 M4.6 12h6.8",
	iterations: "M2.5 2.5v11h11 M4.5 10.5l2.4-2 2 1 2.6-4 M11.5 5.5h.01 M4.5 5.5h.01 M8 4.5h.01",
	sequences: "M2.5 4h3v3h-3z M6.5 4h3v3h-3z M2.5 9h3v3h-3z M6.5 9h3v3h-3z M11.5 5.5h2 M11.5 10.5h2",
	serving: "M2.5 3h11v7h-6l-3 3v-3h-2z M5 6.5h.01 M8 6.5h.01 M11 6.5h.01",
	steps: "M2.5 13.5h3v-4h4v-3.5h4",
	gpu_breakdown: "M8 2.5a5.5 5.5 0 1 0 5.5 5.5H8z M10.5 2.5a5.5 5.5 0 0 1 3 3h-3z",
	critical_path: "M2.5 4h4 M6.5 4l3 8 M9.5 12h4 M2.5 12h2 M11.5 4h2",
	operators: "M2.5 2.5h4v4h-4z M9.5 2.5h4v4h-4z M2.5 9.5h4v4h-4z M11.5 9.5v4 M9.5 11.5h4",
	kernels: "M4.5 4.5h7v7h-7z M6.5 2v2.5 M9.5 2v2.5 M6.5 11.5V14 M9.5 11.5V14 M2 6.5h2.5 M2 9.5h2.5 M11.5 6.5H14 M11.5 9.5H14",
	modules: "M2.5 2.5h4v3h-4z M9.5 6.5h4v3h-4z M9.5 11h4v3h-4z M4.5 5.5v7h5 M4.5 8h5",
	phases: "M2.5 3.5h11 M2.5 8h4 M9 8h4.5 M2.5 12.5h7 M12 12.5h1.5",
	roofline: "M2.5 2.5v11h11 M4.5 11l4-5.5h5 M10.8 9.5h.01",
	findings: "M3 4.5l1 1 1.8-2 M3 9l1 1 1.8-2 M3 13.3l1 1 1.8-2 M8.5 4.5h5 M8.5 9h5 M8.5 13.3h5",
	whatif: "M2.5 12.5h4l3-4.5 M6.5 12.5l7 0 M9.5 8l4-4.5 M10.5 3.5h3v3",
	memcpy: "M2.5 5.5h10 M10 3l2.5 2.5L10 8 M13.5 10.5h-10 M6 8l-2.5 2.5L6 13",
	compare: "M5.5 3v10 M2.5 6l3-3 3 3 M10.5 13V3 M7.5 10l3 3 3-3",
	memory: "M2.5 12.5l3-6 3 3 2.5-6 2.5 3 M2.5 13.5h11",
	ranks: "M2.5 3.5h6 M2.5 8h11 M2.5 12.5h6 M11 3.5h.01 M11 12.5h.01",
	memory_plan: "M2.5 4.5H7 M10.5 4.5h3 M8.75 2.75v3.5 M2.5 11.5h2.5 M8.5 11.5h5 M6.75 9.75v3.5",
	scaling: "M3.5 13.5v-4 M8 13.5V6 M12.5 13.5v-11 M2 13.5h12",
	scaling_cluster: "M2.5 2.5h11v4h-11z M2.5 9.5h11v4h-11z M5 4.5h.01 M5 11.5h.01",
	health: "M1.5 8h3l2-4.5 3 9 2-4.5h3",
	help: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0z M6.3 6.3a1.8 1.8 0 1 1 2.5 1.7c-.5.2-.8.6-.8 1.2 M8 11.3h.01",
	page: "M4 2.5h5l3 3v8H4z M9 2.5v3h3",
	link: "M6.5 9.5l3-3 M7 4.6l1.4-1.4a2.9 2.9 0 0 1 4.4 4.1L11.4 8.9 M9 11.4l-1.4 1.4a2.9 2.9 0 0 1-4.4-4.1L4.6 7.1",
	download: "M8 2.5v7.5 M5 7.2l3 3 3-3 M2.5 13.5h11",
	moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
	sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z M8 1.5V3 M8 13v1.5 M1.5 8H3 M13 8h1.5 M3.4 3.4l1 1 M11.6 11.6l1 1 M12.6 3.4l-1 1 M4.4 11.6l-1 1",
	down: "M5 6.5l3 3 3-3",
	up: "M5 9.5l3-3 3 3",
	right: "M6.5 5l3 3-3 3",
	left: "M9.5 5l-3 3 3 3",
	plus: "M8 3.5v9 M3.5 8h9",
	minus: "M3.5 8h9",
	close: "M4.5 4.5l7 7 M11.5 4.5l-7 7",
	search: "M10.8 7a3.8 3.8 0 1 1-7.6 0 3.8 3.8 0 0 1 7.6 0z M9.8 9.8l3.7 3.7",
	columns: "M2.5 3.5h11v9h-11z M6.2 3.5v9 M9.8 3.5v9",
	warn: "M8 2.5l6 10.8H2z M8 6.5v3.2 M8 11.5h.01",
	info: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0z M8 7.3v3.7 M8 5.1h.01",
	error: "M4 4l8 8 M12 4l-8 8",
	menu: "M2.5 4.5h11 M2.5 8h11 M2.5 11.5h11",
	check: "M3.5 8.5l3 3 6-7",
	file: "M4 2h5l3 3v9H4z M9 2v3h3",
	folder: "M2 4h4.5l1.5 1.5h6V13H2z",
	again: "M3 8a5 5 0 1 0 1.5-3.6 M4.5 2v2.6h2.6",
	area: "M2.5 5V2.5H5 M8 2.5h1 M11 2.5h2.5V5 M13.5 8v1 M13.5 11v2.5H11 M9 13.5H8 M5 13.5H2.5V11 M2.5 9V8",
	filter: "M2.5 3.5h11 M4.5 8h7 M6.5 12.5h3",
	timeline: "M2.5 4h5 M5.5 8h6 M9 12h4.5 M2.5 12h3",
	timeline_selection: "M2.5 4h5 M5.5 8h6 M9 12h4.5 M2.5 12h3",
	pin: "M6 2.5h4 M6.8 2.5v4L5 9h6L9.2 6.5v-4 M8 9v4.5",
	unpin: "M6 2.5h4 M6.8 2.5v4L5 9h6L9.2 6.5v-4 M8 9v4.5 M2.5 13.5l11-11",
	table: "M2.5 3.5h11v9h-11z M2.5 6.5h11 M2.5 9.5h11",
	image: "M2.5 3h11v10h-11z M2.5 11l3.2-3.2 2.3 2.3 2-2 3.5 3.4 M10.5 6h.01"
};
function Icon({ name, size = 16 }) {
	return /* @__PURE__ */ a("svg", {
		class: "icon",
		width: size,
		height: size,
		viewBox: "0 0 16 16",
		fill: "none",
		stroke: "currentColor",
		"stroke-width": "1.5",
		"stroke-linecap": "round",
		"stroke-linejoin": "round",
		"aria-hidden": "true",
		children: /* @__PURE__ */ a("path", { d: PATHS[name] ?? PATHS["page"] })
	});
}
function Logo() {
	return /* @__PURE__ */ a("svg", {
		width: "24",
		height: "24",
		viewBox: "0 0 24 24",
		"aria-hidden": "true",
		children: [
			/* @__PURE__ */ a("rect", {
				width: "24",
				height: "24",
				rx: "6",
				fill: "var(--accent)"
			}),
			/* @__PURE__ */ a("path", {
				d: "M5 17 L11 8.5 H19.5",
				fill: "none",
				stroke: "var(--on-accent)",
				"stroke-width": "2",
				"stroke-linecap": "round",
				"stroke-linejoin": "round"
			}),
			/* @__PURE__ */ a("circle", {
				cx: "14",
				cy: "13",
				r: "1.7",
				fill: "var(--on-accent)"
			})
		]
	});
}
var SHAPES = {
	circle: "M8 3.6a4.4 4.4 0 1 0 0 8.8 4.4 4.4 0 0 0 0-8.8z",
	diamond: "M8 2.6L13.4 8 8 13.4 2.6 8z",
	square: "M4 4h8v8H4z",
	"triangle-up": "M8 3l5.4 9.6H2.6z",
	"triangle-down": "M8 13L2.6 3.4h10.8z",
	cross: "M6.2 2.8h3.6v3.4h3.4v3.6H9.8v3.4H6.2V9.8H2.8V6.2h3.4z",
	x: "M4.2 2.6L8 6.4l3.8-3.8 1.6 1.6L9.6 8l3.8 3.8-1.6 1.6L8 9.6l-3.8 3.8-1.6-1.6L6.4 8 2.6 4.2z",
	bar: "M2.5 6.2h11v3.6h-11z"
};
/** The shape that a kind or a direction has in charts, so that color is never alone. */
function Mark({ shape, color }) {
	return /* @__PURE__ */ a("svg", {
		class: "mark",
		width: "10",
		height: "10",
		viewBox: "0 0 16 16",
		"aria-hidden": "true",
		children: /* @__PURE__ */ a("path", {
			d: SHAPES[shape] ?? SHAPES["circle"],
			fill: color
		})
	});
}
// src/ui/copy.tsx
var field = y$1(null);
var copyOpen = () => field.peek() !== null;
var closeCopy = () => {
	field.value = null;
};
/** True if the clipboard took it; else the field is open. */
async function copyText(text, what) {
	try {
		if (!navigator.clipboard) throw new DOMException("no clipboard on this page", "NotAllowedError");
		await navigator.clipboard.writeText(text);
		return true;
	} catch (error) {
		if (!(error instanceof DOMException)) throw error;
		field.value = {
			text,
			what
		};
		return false;
	}
}
/** A button that answers "Copied" in its place for 1.5 s. */
function Copy({ text, what, class: cls = "button", label, children }) {
	const [done, setDone] = d$2(false);
	A$1(() => {
		if (!done) return;
		const timer = window.setTimeout(() => setDone(false), 1500);
		return () => window.clearTimeout(timer);
	}, [done]);
	return /* @__PURE__ */ a("button", {
		type: "button",
		class: cls,
		"aria-label": label,
		"data-tip": label,
		onClick: () => void copyText(text(), what).then((ok) => setDone(ok)),
		children: done ? /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a(Icon, { name: "check" }), /* @__PURE__ */ a("span", {
			role: "status",
			children: "Copied"
		})] }) : children
	});
}
/** The field for where there is no clipboard. */
function CopyField() {
	const input = T$1(null);
	const now = field.value;
	F$1(() => {
		input.current?.focus();
		input.current?.select();
	}, [now]);
	if (!now) return null;
	const close = closeCopy;
	return /* @__PURE__ */ a("div", {
		class: "veil",
		onClick: (e) => {
			if (e.target === e.currentTarget) close();
		},
		children: /* @__PURE__ */ a("div", {
			class: "dialog",
			role: "dialog",
			"aria-modal": "true",
			"aria-label": `Copy ${now.what}`,
			onKeyDown: (e) => {
				if (e.key === "Escape") {
					e.stopPropagation();
					close();
				}
			},
			children: [
				/* @__PURE__ */ a("div", {
					class: "dialog-head",
					children: [/* @__PURE__ */ a("h2", { children: ["Copy ", now.what] }), /* @__PURE__ */ a("button", {
						type: "button",
						class: "ghost",
						"aria-label": "Close",
						onClick: close,
						children: /* @__PURE__ */ a(Icon, { name: "close" })
					})]
				}),
				/* @__PURE__ */ a("p", {
					class: "quiet",
					children: "The browser does not let this page use the clipboard. The text is selected: press Ctrl+C, or ⌘C."
				}),
				/* @__PURE__ */ a("textarea", {
					ref: input,
					class: "copy-field",
					readOnly: true,
					rows: Math.min(10, Math.max(3, Math.ceil(now.text.length / 70))),
					value: now.text
				})
			]
		})
	});
}
// src/markup.ts
var MARK = /\*\*([^*\n]+?)\*\*|`([^`\n]+)`/g;
/** `text` cut at its marks, in order; joining the pieces' text gives the text without the marks. */
function pieces(text) {
	const out = [];
	let at = 0;
	for (const match of text.matchAll(MARK)) {
		if (match.index > at) out.push({
			kind: "text",
			text: text.slice(at, match.index)
		});
		out.push(match[1] !== void 0 ? {
			kind: "bold",
			text: match[1]
		} : {
			kind: "code",
			text: match[2]
		});
		at = match.index + match[0].length;
	}
	if (at < text.length) out.push({
		kind: "text",
		text: text.slice(at)
	});
	return out;
}
/** The text alone, for labels and titles that cannot carry marks. */
var plain = (text) => pieces(text).map((p) => p.text).join("");
// src/ui/text.tsx
function Text({ text }) {
	return /* @__PURE__ */ a($, { children: pieces(text).map((p) => p.kind === "bold" ? /* @__PURE__ */ a("strong", { children: p.text }) : p.kind === "code" ? /* @__PURE__ */ a("code", { children: p.text }) : p.text) });
}
/** Letters at the end of a name that stay. */
var TAIL$1 = 12;
/** Letters from which on a part that stays is cut in its own middle where there is no room, and those that stay at its end. */
var LONG_PART = 20;
var PART_TAIL = 8;
/**
* A long name cut in its middle by the room it has; the whole of it on hover (unless `tip` is empty) and for copying. part: what of it tells it from
* other names, [from, to): that stays, and what stands around it is cut. tail: letters at the end that stay, of a name twice as long.
*/
function Middle({ text, tip = text, part, tail = TAIL$1 }) {
	if (part && text.length > tail * 2 && part[0] > 0) return /* @__PURE__ */ a("span", {
		class: "mid kept",
		"data-tip": tip || void 0,
		children: [
			/* @__PURE__ */ a("span", { children: text.slice(0, part[0]) }),
			/* @__PURE__ */ a("span", {
				class: "mid-kept",
				children: part[1] - part[0] > LONG_PART ? /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("span", { children: text.slice(part[0], part[1] - PART_TAIL) }), /* @__PURE__ */ a("span", { children: text.slice(part[1] - PART_TAIL, part[1]) })] }) : text.slice(...part)
			}),
			/* @__PURE__ */ a("span", { children: text.slice(part[1]) })
		]
	});
	if (text.length <= tail * 2) return /* @__PURE__ */ a("span", {
		class: "mid",
		"data-tip": tip || void 0,
		children: /* @__PURE__ */ a("span", { children: text })
	});
	return /* @__PURE__ */ a("span", {
		class: "mid",
		"data-tip": tip || void 0,
		children: [/* @__PURE__ */ a("span", {
			class: "mid-a",
			children: text.slice(0, -tail)
		}), /* @__PURE__ */ a("span", {
			class: "mid-b",
			children: text.slice(-tail)
		})]
	});
}
// src/ui/link.tsx
function ViewLink({ view, class: cls, tip, label, current, stop, onGo, children }) {
	const click = (event) => {
		event.stopPropagation();
		if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
		event.preventDefault();
		onGo?.();
		go(view, "push");
	};
	return /* @__PURE__ */ a("a", {
		class: cls,
		href: addressOf(view),
		target: "_parent",
		onClick: click,
		"data-tip": tip,
		"aria-label": label,
		"aria-current": current === "within" ? "true" : current ? "page" : void 0,
		tabIndex: stop ? -1 : void 0,
		children
	});
}
var ReportLink = ({ link, fallback = "Open" }) => /* @__PURE__ */ a(ViewLink, {
	view: linkView(link),
	class: "link",
	children: /* @__PURE__ */ a(Text, { text: link.label || fallback })
});
// src/ui/controls.tsx
/** One of a few: a row of joined buttons, arrow keys move. */
function Switch({ label, tip, value, choices, onPick }) {
	const move = (event) => {
		const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
		if (!step) return;
		event.preventDefault();
		event.stopPropagation();
		const next = choices[(choices.findIndex((c) => c.value === value) + step + choices.length) % choices.length];
		onPick(next.value);
		event.currentTarget.querySelectorAll("button")[choices.indexOf(next)]?.focus();
	};
	return /* @__PURE__ */ a("div", {
		class: "switch",
		role: "radiogroup",
		"aria-label": label,
		"data-tip": tip,
		onKeyDown: move,
		children: choices.map((c) => /* @__PURE__ */ a("button", {
			type: "button",
			role: "radio",
			"aria-checked": c.value === value,
			tabIndex: c.value === value ? 0 : -1,
			class: c.value === value ? "on" : "",
			onClick: () => onPick(c.value),
			children: c.text
		}))
	});
}
function Chip({ on, onToggle, count, mark, tip, apart, children }) {
	return /* @__PURE__ */ a("button", {
		type: "button",
		class: `chip ${on ? "on" : ""} ${apart ? "apart" : ""}`,
		"aria-pressed": on,
		"data-tip": tip,
		onClick: onToggle,
		children: [
			mark,
			/* @__PURE__ */ a("span", { children }),
			count !== void 0 && /* @__PURE__ */ a("span", {
				class: "chip-count",
				children: count
			}),
			on && /* @__PURE__ */ a(Icon, {
				name: "close",
				size: 11
			})
		]
	});
}
/** On or off. */
function Toggle({ label, on, onToggle }) {
	return /* @__PURE__ */ a("button", {
		type: "button",
		role: "switch",
		"aria-checked": on,
		"aria-label": label,
		class: "toggle",
		onClick: onToggle,
		children: /* @__PURE__ */ a("span", {})
	});
}
var GLYPH = {
	info: "info",
	warn: "warn",
	error: "error"
};
function Notice({ notice, children }) {
	const level = notice.level ?? "warn";
	return /* @__PURE__ */ a("div", {
		class: `notice ${level}`,
		role: level === "error" ? "alert" : "status",
		children: [
			/* @__PURE__ */ a(Icon, { name: GLYPH[level] }),
			/* @__PURE__ */ a("span", {
				class: "notice-text",
				children: /* @__PURE__ */ a(Text, { text: notice.text })
			}),
			notice.link && /* @__PURE__ */ a(ViewLink, {
				view: linkView(notice.link),
				class: "link",
				children: /* @__PURE__ */ a(Text, { text: notice.link.label || "More" })
			}),
			children
		]
	});
}
var Block = ({ w, h }) => /* @__PURE__ */ a("div", {
	class: "block",
	style: {
		width: w,
		height: `${h}px`
	}
});
/** The shape of a page to come. */
function Skeleton() {
	return /* @__PURE__ */ a("div", {
		class: "grid",
		"aria-hidden": "true",
		children: [
			/* @__PURE__ */ a("div", {
				class: "card span-12 bones row",
				children: [
					/* @__PURE__ */ a(Block, {
						w: "150px",
						h: 48
					}),
					/* @__PURE__ */ a("div", {
						class: "bones grow",
						children: [/* @__PURE__ */ a(Block, {
							w: "60%",
							h: 12
						}), /* @__PURE__ */ a(Block, {
							w: "80%",
							h: 12
						})]
					}),
					/* @__PURE__ */ a(Block, {
						w: "90px",
						h: 36
					}),
					/* @__PURE__ */ a(Block, {
						w: "90px",
						h: 36
					})
				]
			}),
			/* @__PURE__ */ a("div", {
				class: "card span-7 bones",
				children: [
					/* @__PURE__ */ a(Block, {
						w: "34%",
						h: 14
					}),
					/* @__PURE__ */ a(Block, {
						w: "92%",
						h: 20
					}),
					/* @__PURE__ */ a(Block, {
						w: "55%",
						h: 20
					}),
					/* @__PURE__ */ a(Block, {
						w: "29%",
						h: 20
					}),
					/* @__PURE__ */ a(Block, {
						w: "45%",
						h: 20
					})
				]
			}),
			/* @__PURE__ */ a("div", {
				class: "card span-5 bones",
				children: [
					/* @__PURE__ */ a(Block, {
						w: "32%",
						h: 14
					}),
					/* @__PURE__ */ a(Block, {
						w: "90%",
						h: 14
					}),
					/* @__PURE__ */ a(Block, {
						w: "70%",
						h: 12
					}),
					/* @__PURE__ */ a(Block, {
						w: "90%",
						h: 14
					}),
					/* @__PURE__ */ a(Block, {
						w: "60%",
						h: 12
					})
				]
			}),
			/* @__PURE__ */ a("div", {
				class: "card span-12 bones",
				children: [/* @__PURE__ */ a(Block, {
					w: "22%",
					h: 14
				}), Array.from({ length: 6 }, (_, i) => /* @__PURE__ */ a(Block, {
					w: `${96 - i * 3}%`,
					h: 14
				}))]
			})
		]
	});
}
// src/ui/width.ts
var rail = window.matchMedia("(max-width: 1180px)");
var phone = window.matchMedia("(max-width: 760px)");
/** 1180 px and less: icons for words, second-rank columns hidden. */
var narrow = y$1(rail.matches);
/** 760 px and less: page list behind a button. */
var slim = y$1(phone.matches);
rail.addEventListener("change", () => {
	narrow.value = rail.matches;
});
phone.addEventListener("change", () => {
	slim.value = phone.matches;
});
var SI = [
	[1, ""],
	[1e3, "k"],
	[1e6, "M"],
	[1e9, "G"],
	[0xe8d4a51000, "T"],
	[0x38d7ea4c68000, "P"],
	[0xde0b6b3a7640000, "E"]
];
var TIME = [
	[1, "ns"],
	[1e3, "µs"],
	[1e6, "ms"],
	[1e9, "s"]
];
/** ns from which a time is written in seconds: 10 s, so that a step and its parts have one unit, ms. */
var SECONDS_FROM = 1e10;
var SCALED = /* @__PURE__ */ new Set([
	"ns",
	"B",
	"FLOP",
	"B/s",
	"FLOP/s"
]);
/** The divisor and the name of the unit a person would pick for `value` (base units). */
function scaleOf(value, unit) {
	if (!SCALED.has(unit)) return unit === "ratio" ? {
		factor: .01,
		name: "%"
	} : {
		factor: 1,
		name: unit === "count" ? "" : unit
	};
	const steps = unit === "ns" ? TIME : SI.map(([f, p]) => [f, p + unit]);
	const magnitude = Math.abs(value);
	let best = steps[0];
	for (const step of steps) if (magnitude >= (step[1] === "s" ? SECONDS_FROM : step[0]) * .9995) best = step;
	return {
		factor: best[0],
		name: best[1]
	};
}
/** Decimals for up to four significant digits: 0 from 1 000, 1 from 100, 2 from 1, 3 below. */
function digits(value) {
	const magnitude = Math.abs(value);
	if (magnitude >= 999.95) return 0;
	if (magnitude >= 99.995) return 1;
	return magnitude >= .9995 ? 2 : 3;
}
/** A finite magnitude with `decimals` digits; an exact tie goes to the even digit, as Python's formatting does. */
function fixed(magnitude, decimals) {
	if (magnitude >= 0x38d7ea4c68000) return BigInt(Math.round(magnitude)).toString() + (decimals ? "." + "0".repeat(decimals) : "");
	const text = magnitude.toFixed(decimals);
	const exact = magnitude.toFixed(100);
	const cut = exact.length - 100 + decimals;
	if (!/^50*$/.test(exact.slice(cut))) return text;
	const last = text.replace(".", "").at(-1);
	if (Number(last) % 2 === 0) return text;
	return exact.slice(0, decimals === 0 ? cut - 1 : cut);
}
/** `value` with thousands separated by a narrow space and a real minus sign. */
function number(value, decimals) {
	const [whole, part] = fixed(Math.abs(value), decimals).split(".");
	const text = whole.replace(/\B(?=(\d{3})+$)/g, " ") + (part ? "." + part : "");
	return (value < 0 && /[1-9]/.test(text) ? "−" : "") + text;
}
/** The number and its unit apart, so that the unit can be set in quieter ink. */
function humanParts(value, unit = "") {
	if (value === null || value === void 0 || !Number.isFinite(value)) return {
		text: "—",
		unit: ""
	};
	if (unit === "count") return {
		text: number(value, 0),
		unit: ""
	};
	if (unit === "ratio" || unit === "%") {
		const percent = unit === "ratio" ? value * 100 : value;
		if (Math.abs(percent) > 0 && Math.abs(percent) < .05) return {
			text: "< 0.1",
			unit: "%"
		};
		return {
			text: number(percent, 1),
			unit: "%"
		};
	}
	if (value === 0) return {
		text: "0",
		unit
	};
	const { factor, name } = scaleOf(value, unit);
	const scaled = value / factor;
	return {
		text: number(scaled, unit === "ns" && name === "ns" || unit === "B" && name === "B" ? 0 : digits(scaled)),
		unit: name
	};
}
/** Number and unit of an amount in a list that has one unit, that of the largest. A mirror of `side_by_side`. */
function partsBeside(value, unit, largest) {
	const { factor, name } = scaleOf(largest, unit);
	const scaled = Math.abs(value) / factor;
	if (name === "" || name === "%" || name === unit || scaled < .001) return humanParts(value, unit);
	return {
		text: number(value / factor, scaled >= .1 ? digits(scaled) : 2 - Math.floor(Math.log10(scaled))),
		unit: name
	};
}
/** `value` in base units as a person reads it: `12.3 ms`, `989 TFLOP/s`; unknown is an em dash. */
function human(value, unit = "") {
	const parts = humanParts(value, unit);
	return parts.unit ? parts.text + " " + parts.unit : parts.text;
}
/** A moment, ns, in the unit that a person would pick, with as many decimals as tell moments `step` ns apart. */
function moment(time, step = 1) {
	const { factor, name } = scaleOf(time, "ns");
	const fine = Math.ceil(Math.log10(factor / Math.max(step, 1)) - 1e-9);
	return number(time / factor, factor === 1 ? 0 : Math.max(digits(time / factor), fine)) + " " + name;
}
/** The unit of a column whose largest value is `top`: as a person picks it, but ms up to ten seconds, where ms can be added and ranked. */
var columnUnit = (top, unit) => scaleOf(unit === "ns" && top < 1e10 ? Math.min(top, 9e8) : top, unit);
/**
* The scale of a column: the unit of its largest value, decimals that still tell its middle apart, at most five digits.
* `neighbor` is the unit of the columns next to it; it is used where the column's largest value is at least a hundredth of it.
* `single`: the rows are single things without a total, which are compared with each other and not added up: a unit in which half of
* them would vanish gives way to the next smaller one, unless the largest would have more than six digits there. `fixed`: the unit, where
* others have chosen it.
*/
function columnScale(values, unit, neighbor, single = false, fixed) {
	const known = [];
	let top = 0;
	for (const v of values) {
		if (typeof v !== "number" || !Number.isFinite(v) || v === 0) continue;
		const a = Math.abs(v);
		if (a > top) top = a;
		known.push(a);
	}
	if (unit === "count") return {
		factor: 1,
		name: "",
		decimals: 0
	};
	if (unit === "ratio") return {
		factor: .01,
		name: "%",
		decimals: 1
	};
	if (unit === "%") return {
		factor: 1,
		name: "%",
		decimals: 1
	};
	if (!known.length) return {
		...scaleOf(unit === "ns" ? 1e6 : unit === "B" ? 1e6 : 1, unit),
		decimals: 0
	};
	known.sort((a, b) => a - b);
	const half = known[known.length >> 1];
	let scale = columnUnit(top, unit);
	const low = unit === "B/s" ? known[known.length >> 2] : half;
	if (unit !== "ns" && low < scale.factor * (unit === "B/s" ? .1 : .05) && top < scale.factor * 10) scale = scaleOf(top / 1e3, unit);
	const vanish = single && (unit === "ns" || unit === "B") && scale.factor >= 1e3 && half < scale.factor * .05 && top < scale.factor * 1e3;
	if (vanish) scale = scaleOf(scale.factor / 1e3, unit);
	const { factor, name } = fixed ?? (!vanish && neighbor && neighbor.factor > scale.factor && top >= neighbor.factor * .01 ? neighbor : scale);
	if (unit === "ns" && name === "ns" || unit === "B" && name === "B") return {
		factor,
		name,
		decimals: 0
	};
	if (unit === "" && known.every(Number.isInteger)) return {
		factor,
		name,
		decimals: 0
	};
	const middle = (unit === "B/s" ? low : half) / factor;
	const reach = unit === "" ? Math.min(top, half * 1e3) : top;
	const room = 5 - Math.max(1, Math.floor(Math.log10(Math.max(reach / factor, 1))) + 1);
	return {
		factor,
		name,
		decimals: Math.max(0, Math.min(top < .1 * factor ? 4 : digits(middle), room, top / factor >= 1 ? 2 : top / factor >= .1 ? 3 : 4))
	};
}
/** The one unit of times of single calls: µs, from a median of ten milliseconds on ms. */
function callScale(values) {
	const known = values.filter((v) => v > 0).sort((a, b) => a - b);
	return (known[known.length >> 1] ?? 0) < 1e7 ? {
		factor: 1e3,
		name: "µs"
	} : {
		factor: 1e6,
		name: "ms"
	};
}
/** A value in a column's scale: `0` is exact, a value below half a unit of the last digit is `< 0.01`. */
function inColumn(value, scale) {
	if (value === 0) return "0";
	const scaled = value / scale.factor;
	const step = 10 ** -scale.decimals;
	if (Math.abs(scaled) < step / 2) return (scaled < 0 ? "> −" : "< ") + number(step, scale.decimals);
	return number(scaled, scale.decimals);
}
/** The value in base units, every digit: for tooltips and copying. */
function exact(value, unit) {
	if (unit === "ratio") return `${value * 100} %`;
	const text = Number.isInteger(value) ? number(value, 0) : String(value).replace("-", "−");
	return unit && unit !== "count" ? text + " " + unit : text;
}
/** A number that a person typed: `0.1`, `1 000`, `1e12`, `10 T`, `3.35 TB/s`; null if it is none. Decimal prefixes from k to E. */
function readQuantity(text) {
	const found = /^([-\u2212]?[\d\s\u202f\u00a0]*[.,]?\d*(?:[eE][-+]?\d+)?)\s*([kKMGTPE]?)(?:[A-Za-z/%µ]*)$/.exec(text.trim());
	const digitsOf = found?.[1].replace(/[\s\u202f\u00a0]/g, "").replace("−", "-").replace(",", ".") ?? "";
	if (!found || !/\d/.test(digitsOf)) return null;
	const prefix = found[2] === "K" ? "k" : found[2];
	const value = Number(digitsOf) * (SI.find(([, p]) => p === prefix)?.[0] ?? 1);
	return Number.isFinite(value) ? value : null;
}
// src/state/search.ts
var MOST$6 = 8;
var KINDS$1 = [
	["finding", "Findings"],
	["kernel", "Kernels"],
	["operator", "Operators"],
	["module", "Modules"]
];
var words$1 = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
var matches$1 = (text, query) => words$1(query).every((w) => text.toLowerCase().includes(w));
/** Pages and runs whose names hold every word. A page that the recording cannot fill is left out. */
function localGroups(query, analyses, runs, here) {
	const byTitle = [...analyses.filter((a) => a.available !== false && matches$1(`${a.title} ${a.question ?? ""}`, query))].sort((a, b) => Number(matches$1(b.title, query)) - Number(matches$1(a.title, query)));
	const named = runs.filter((r) => r !== here && matches$1(r || ".", query));
	return [group$1("Pages", byTitle.map((a) => ({
		text: a.title,
		note: "",
		tip: a.question ?? "",
		go: {
			analysis: a.name,
			query: {}
		}
	}))), group$1("Runs", named.map((run) => ({
		text: run || ".",
		note: "",
		tip: "",
		go: {
			analysis: "",
			query: { run }
		}
	})))].filter((g) => g.results.length > 0);
}
var group$1 = (title, results) => ({
	title,
	results: results.slice(0, MOST$6),
	more: Math.max(0, results.length - MOST$6)
});
/** What the server found, by kind. Of an answer to another text only what also matches this one: the answer to it follows. */
function foundGroups(found, query) {
	if (!found) return [];
	if (found.query !== query.trim()) return foundGroups({
		query: query.trim(),
		hits: found.hits.filter((h) => matches$1(h.name, query)),
		counts: {}
	}, query);
	return KINDS$1.map(([kind, title]) => {
		const hits = found.hits.filter((h) => h.kind === kind);
		return {
			title,
			results: hits.map(resultOf),
			more: Math.max(0, (found.counts[kind] ?? hits.length) - hits.length)
		};
	}).filter((g) => g.results.length > 0);
}
function resultOf(h) {
	const time = typeof h.ns === "number" ? human(h.ns, "ns") : "";
	const table = Object.keys(h.link.query ?? {}).flatMap((key) => /^t\.([^.]+)\./.exec(key)?.[1] ?? [])[0];
	return {
		text: h.name,
		note: time,
		tip: [h.name, time && `${time}, ${h.note}`].filter(Boolean).join("\n"),
		go: h.link,
		...table && { table }
	};
}
/** Findings and named things first, once something is typed; else pages and runs. */
var ordered = (query, local, found) => words$1(query).length ? [
	...local.slice(0, 1),
	...found,
	...local.slice(1)
] : [...local, ...found];
/** The place after a key in a list of `count`, around its ends. */
function moved$1(at, key, count) {
	if (!count) return -1;
	if (key === "ArrowDown") return (at + 1) % count;
	if (key === "ArrowUp") return (at + count - 1) % count;
	if (key === "PageDown") return Math.min(at + 8, count - 1);
	if (key === "PageUp") return Math.max(at - 8, 0);
	return at;
}
var two = (n) => String(n).padStart(2, "0");
/** `2026-11-23 00:49` in the reader's own time. */
function dateText(seconds) {
	const d = /* @__PURE__ */ new Date(seconds * 1e3);
	return Number.isFinite(d.getTime()) ? `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}` : "";
}
/** What is known of a run: date, device, step, ratio. What is not known is said to be unknown. */
function summaryText(s) {
	if (!s) return "";
	const date = typeof s.recorded === "number" ? dateText(s.recorded) : s.mtime > 0 ? `file of ${dateText(s.mtime)}` : "date unknown";
	const step = typeof s.step_ns === "number" ? `${s.whole ? "recording" : "step"} ${human(s.step_ns, "ns")}` : "";
	const ratio = typeof s.ratio === "number" ? `${s.estimated ? "≈ " : ""}${human(s.ratio, "ratio")} of the speed of light` : "";
	const known = [
		s.device,
		step,
		ratio
	];
	const unknown = [
		"device",
		"step",
		"speed of light"
	].filter((_, i) => !known[i]);
	const last = unknown.length ? `${unknown.length > 1 ? `${unknown.slice(0, -1).join(", ")} and ${unknown.at(-1)}` : unknown[0]} unknown` : "";
	return [
		date,
		...known,
		last
	].filter(Boolean).join(" · ");
}
// src/ui/select.tsx
var SEARCH_FROM = 8;
var MOST$5 = 400;
function List({ options, value, label, onPick, marked, head, foot, free }) {
	const [text, setText] = d$2("");
	const list = T$1(null);
	const found = w$2(() => {
		const words = text.toLowerCase().split(/\s+/).filter(Boolean);
		return options.filter((o) => words.every((w) => `${o.text} ${o.note ?? ""} ${o.detail ?? ""}`.toLowerCase().includes(w)));
	}, [options, text]);
	const move = (event) => {
		const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
		if (!step) return;
		event.preventDefault();
		const items = [...list.current?.querySelectorAll("button.option") ?? []];
		const at = items.indexOf(document.activeElement);
		items[at < 0 ? step > 0 ? 0 : items.length - 1 : (at + step + items.length) % items.length]?.focus();
	};
	const long = options.length >= SEARCH_FROM || !!free;
	const typed = text.trim();
	const ask = free?.ask ?? `Search ${label.toLowerCase()}`;
	const enter = () => {
		const exact = options.find((o) => o.value === typed) ?? found[0];
		if (exact && (typed || !free)) onPick(exact.value, { shift: false });
		else if (free && typed) free.take(typed);
	};
	return /* @__PURE__ */ a("div", {
		class: "list",
		onKeyDown: move,
		children: [
			long && /* @__PURE__ */ a("label", {
				class: "search",
				children: [/* @__PURE__ */ a(Icon, {
					name: "search",
					size: 14
				}), /* @__PURE__ */ a("input", {
					"data-first": true,
					type: "text",
					placeholder: ask,
					"aria-label": ask,
					value: text,
					onInput: (e) => setText(e.currentTarget.value),
					onKeyDown: (e) => {
						if (e.key === "Enter") enter();
					}
				})]
			}),
			head,
			/* @__PURE__ */ a("div", {
				class: "options",
				ref: list,
				role: "listbox",
				"aria-label": label,
				children: [
					found.slice(0, MOST$5).map((o) => {
						const on = marked ? marked(o.value) : o.value === value;
						return /* @__PURE__ */ a("button", {
							type: "button",
							class: `option ${on ? "on" : ""}`,
							role: "option",
							"aria-selected": on,
							disabled: o.disabled,
							"data-first": !long && on ? true : void 0,
							onClick: (e) => onPick(o.value, { shift: e.shiftKey }),
							children: [
								/* @__PURE__ */ a(Middle, { text: o.text }),
								o.note && /* @__PURE__ */ a("span", {
									class: "note",
									children: o.note
								}),
								o.detail && /* @__PURE__ */ a("span", {
									class: "detail",
									children: o.detail
								})
							]
						});
					}),
					free && typed && !options.some((o) => o.value === typed) && /* @__PURE__ */ a("button", {
						type: "button",
						class: "option",
						role: "option",
						"aria-selected": false,
						onClick: () => free.take(typed),
						children: [
							"Use “",
							typed,
							"”"
						]
					}),
					!found.length && !free && /* @__PURE__ */ a("div", {
						class: "none",
						children: [
							"Nothing matches “",
							text,
							"”."
						]
					}),
					found.length > MOST$5 && /* @__PURE__ */ a("div", {
						class: "none",
						children: [found.length - MOST$5, " more; type to narrow."]
					})
				]
			}),
			foot
		]
	});
}
// src/sections/table/names.ts
/** Letters of a name that stay in every cell: names that differ in them need no more. */
var HEAD = 14;
/** Letters that are kept of a part, at most. */
var MOST$4 = 36;
/** Letters by which a part grows to the beginning and the end of a word. */
var WORD$1 = 12;
/** Letters before a part, at least: a part that begins earlier is on the screen anyway. */
var LEAST$5 = 6;
/** Letters up to which a part begins where the names around it branch: the tile before the alignment. */
var USUAL = 30;
/** Names on each side that are looked at for that. */
var AROUND$4 = 48;
/** Letters of a part that has to tell a name from several others. */
var WIDEST = 64;
/** Times that parts are widened. */
var ROUNDS = 4;
/** Distinct names up to which they are compared. */
var COMPARED = 2e4;
var inWord = (text, at) => /[A-Za-z0-9]/.test(text[at] ?? "");
function common(a, b) {
	const least = Math.min(a.length, b.length);
	let head = 0;
	while (head < least && a[head] === b[head]) head++;
	let tail = 0;
	while (tail < least - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
	return {
		head,
		tail
	};
}
/** A part in whole words, as far as the letters before it allow. */
function inWords(name, from, to) {
	let [a, b] = [from, to];
	for (let n = 0; n < WORD$1 && a > 0 && inWord(name, a - 1); n++) a--;
	for (let n = 0; n < WORD$1 && b < name.length && inWord(name, b); n++) b++;
	return [a >= LEAST$5 ? a : from, b];
}
/**
* [from, to) of the part of each name in which it differs from those that look like it, in whole words; none for a name that its first
* `shown` letters tell apart.
*/
function distinctParts(names, shown = HEAD) {
	const sorted = [...new Set(names)].sort();
	const out = /* @__PURE__ */ new Map();
	if (sorted.length > COMPARED) return out;
	const pairs = sorted.slice(1).map((name, i) => common(sorted[i], name));
	sorted.forEach((name, i) => {
		const alike = [pairs[i - 1], pairs[i]].filter((p) => p !== void 0 && p.head >= shown);
		if (!alike.length) return;
		const from = Math.min(...alike.map((p) => p.head), name.length - 1);
		const to = Math.max(...alike.map((p) => name.length - p.tail), from + 1);
		const [a, b] = inWords(name, branches(pairs, i, shown).find((h) => h < from && to - h <= USUAL) ?? from, to);
		if (a >= LEAST$5) out.set(name, [a, Math.min(b, a + MOST$4)]);
	});
	for (let n = 0; n < ROUNDS && apart(sorted, out); n++);
	return out;
}
/** Lengths of what a name has in common with those around it, the shortest first: where the family that it is of branches. */
function branches(pairs, at, least) {
	const out = /* @__PURE__ */ new Set();
	for (const step of [-1, 1]) {
		let head = Infinity;
		for (let n = 0, i = step < 0 ? at - 1 : at; n < AROUND$4 && pairs[i]; n++, i += step) {
			head = Math.min(head, pairs[i].head);
			if (head < least) break;
			out.add(head);
		}
	}
	return [...out].sort((a, b) => a - b);
}
/** What stays of a name in the narrowest cell. */
var shortest = (name, part) => name.length <= 24 ? name : part ? `${name.slice(0, HEAD)}…${name.slice(...part)}` : `${name.slice(0, HEAD)}…${name.slice(-12)}`;
/** Widens the parts of names of which the same stays, to where they differ from each other; false where no two are alike. */
function apart(sorted, out) {
	const groups = /* @__PURE__ */ new Map();
	for (const name of sorted) {
		const text = shortest(name, out.get(name));
		groups.set(text, [...groups.get(text) ?? [], name]);
	}
	let changed = false;
	for (const alike of groups.values()) {
		if (alike.length < 2) continue;
		const pairs = alike.slice(1).map((name, i) => common(alike[i], name));
		const head = Math.min(...pairs.map((p) => p.head));
		const tail = Math.min(...pairs.map((p) => p.tail));
		for (const name of alike) {
			const now = out.get(name);
			const [from, to] = inWords(name, Math.min(head, name.length - 1), Math.max(name.length - tail, head + 1));
			const wide = Math.max(LEAST$5, Math.min(from, now?.[0] ?? from));
			const a = to - wide > WIDEST ? Math.max(LEAST$5, from) : wide;
			const b = Math.min(name.length, Math.max(to, now?.[1] ?? to), a + WIDEST);
			if (b > a && (now?.[0] !== a || now?.[1] !== b)) changed = !!out.set(name, [a, b]);
		}
	}
	return changed;
}
var cache$1 = /* @__PURE__ */ new WeakMap();
/** The parts of the names of a column; computed once per column. */
function partsOf$1(values) {
	let found = cache$1.get(values);
	if (!found) cache$1.set(values, found = distinctParts(values.filter((v) => typeof v === "string")));
	return found;
}
// src/ui/popover.tsx
function Popover({ button, class: cls, label, tip, align = "left", disabled, wide, fixed, children }) {
	const [open, setOpen] = d$2(false);
	const root = T$1(null);
	const trigger = T$1(null);
	const card = T$1(null);
	const close = () => {
		setOpen(false);
		trigger.current?.focus();
	};
	A$1(() => {
		if (!open) return;
		const away = (event) => {
			if (!root.current?.contains(event.target)) setOpen(false);
		};
		document.addEventListener("mousedown", away);
		document.addEventListener("focusin", away);
		const moved = (event) => {
			if (fixed && !card.current?.contains(event.target)) setOpen(false);
		};
		document.addEventListener("scroll", moved, {
			capture: true,
			passive: true
		});
		return () => {
			document.removeEventListener("mousedown", away);
			document.removeEventListener("focusin", away);
			document.removeEventListener("scroll", moved, { capture: true });
		};
	}, [open]);
	F$1(() => {
		const el = card.current;
		if (!open || !el) return;
		if (fixed) {
			const at = trigger.current.getBoundingClientRect();
			const below = at.bottom + 4 + el.offsetHeight <= window.innerHeight - 8 || at.top < el.offsetHeight + 12;
			const left = Math.max(8, Math.min(at.left, window.innerWidth - el.offsetWidth - 8));
			Object.assign(el.style, {
				position: "fixed",
				right: "auto",
				left: `${left}px`,
				top: `${below ? at.bottom + 4 : at.top - el.offsetHeight - 4}px`
			});
		}
		const box = el.getBoundingClientRect();
		if (!fixed && box.right > window.innerWidth - 8) el.style.transform = `translateX(${window.innerWidth - 8 - box.right}px)`;
		else if (!fixed && box.left < 8) el.style.transform = `translateX(${8 - box.left}px)`;
		el.style.maxHeight = `${Math.max(160, window.innerHeight - box.top - 16)}px`;
		(el.querySelector("[data-first]") ?? el.querySelector("input,button,a,[tabindex='0']"))?.focus();
	}, [open]);
	return /* @__PURE__ */ a("div", {
		class: "popover",
		ref: root,
		onKeyDown: (e) => {
			if (open && e.key === "Escape") {
				e.stopPropagation();
				close();
			}
		},
		children: [/* @__PURE__ */ a("button", {
			ref: trigger,
			type: "button",
			class: cls,
			"aria-haspopup": "dialog",
			"aria-expanded": open,
			"aria-label": label,
			"data-tip": open ? void 0 : tip,
			disabled,
			onClick: () => setOpen(!open),
			children: button
		}), open && /* @__PURE__ */ a("div", {
			ref: card,
			class: `float ${align} ${wide ? "wide" : ""}`,
			role: "dialog",
			"aria-label": label,
			children: children(close)
		})]
	});
}
// src/pages/pick.tsx
/** Letters at the end of a value that stay. */
var TAIL = 6;
var Pick = ({ label, value, part, unsure, tip, disabled, class: cls, badge, children }) => {
	const whole = [.../* @__PURE__ */ new Set([value, tip])].filter(Boolean).join("\n");
	return /* @__PURE__ */ a(Popover, {
		class: `pick ${cls ?? ""}`,
		label: `${label}: ${value}`,
		wide: true,
		tip: whole,
		...disabled && { disabled },
		button: /* @__PURE__ */ a($, { children: [
			/* @__PURE__ */ a("span", {
				class: "pick-label",
				children: label
			}),
			" ",
			/* @__PURE__ */ a("span", {
				class: "pick-value",
				children: [
					/* @__PURE__ */ a("span", {
						class: `pick-text ${unsure ? "marked unverified" : ""}`,
						children: /* @__PURE__ */ a(Middle, {
							text: value,
							part,
							tail: TAIL,
							tip: ""
						})
					}),
					unsure && /* @__PURE__ */ a("sup", {
						class: "unsure",
						children: "?"
					}),
					badge,
					/* @__PURE__ */ a(Icon, {
						name: "down",
						size: 12
					})
				]
			})
		] }),
		children
	});
};
// src/pages/base.tsx
/** What a recording can be set against: runs, then the other workers of its run, then the other spans of its worker. */
function baseOptions(runs, { run, worker, span }) {
	const at = (...names) => JSON.stringify(names);
	return [
		...runs.filter((r) => r !== run).map((r) => ({
			value: at(r.name, "", ""),
			text: r.name || "."
		})),
		...run.workers.filter((w) => w !== worker && !isJoined(w)).map((w) => ({
			value: at(run.name, w.name, ""),
			text: w.name,
			note: "worker of this run"
		})),
		...worker.spans.filter((s) => s !== span && s.kind === span.kind).map((s) => ({
			value: at(run.name, worker.name, s.name),
			text: s.label || s.name,
			note: "span of this worker"
		}))
	];
}
function BasePick({ list, chosen }) {
	const { base, base_worker, base_span } = view.value;
	const options = baseOptions(list, chosen);
	const on = !!(base || base_worker || base_span);
	if (!options.length || slim.value && !on) return null;
	const takes = info.value?.compares !== false;
	const run = base || chosen.run.name;
	const name = base_span || (run === chosen.run.name ? base_worker : "") || run || ".";
	const pick = (value, close) => {
		const [run, worker, span] = value ? JSON.parse(value) : [
			"",
			"",
			""
		];
		change(value ? {
			base: run,
			base_worker: worker,
			base_span: span,
			tables: {}
		} : {
			...NO_BASE,
			tables: {}
		}, "push");
		close();
	};
	return /* @__PURE__ */ a(Pick, {
		label: "Against",
		value: on ? takes ? name : "not this page" : "nothing",
		part: on && takes ? distinctParts(list.map((r) => r.name), 6).get(name) : void 0,
		class: "long name divided",
		tip: !takes ? "This page compares by itself, or is of no recording" : on ? `Numbers of ${name} stand beside those shown` : "Set this page against another run: its numbers and the differences stand beside",
		children: (close) => /* @__PURE__ */ a(List, {
			label: "Baselines",
			value: on ? JSON.stringify([
				run,
				base_worker,
				base_span
			]) : "",
			options: [{
				value: "",
				text: "Nothing"
			}, ...options],
			onPick: (value) => pick(value, close)
		})
	});
}
// src/pages/capture.tsx
var TIP = "What names the operators, sizes and modules of the kernels that graph launches replay here";
/** The field is there where graphs were launched, or where the address names a capture. */
function CapturePick({ list, chosen }) {
	const now = view.value.capture;
	const known = pages.value.value;
	if (!now && (!known?.replays || slim.value)) return null;
	const used = known?.named_by ?? "";
	return /* @__PURE__ */ a(Pick, {
		label: "Graph capture",
		value: now === "none" ? "none" : now || (used ? "as found" : "none found"),
		class: "long name divided",
		tip: inFile ? LIVE : [TIP, now !== "none" && (now || used) && (used ? `In use: ${used}` : "It is not used: see Trace health")].filter(Boolean).join("\n"),
		disabled: inFile,
		children: (close) => /* @__PURE__ */ a(List, {
			label: "Graph captures",
			value: now,
			options: captureOptions(list, chosen.span.file),
			onPick: (capture) => {
				change({
					capture,
					tables: {}
				}, "push");
				close();
			}
		})
	});
}
// src/ui/download.ts
function download(name, text, type) {
	const url = URL.createObjectURL(new Blob([text], { type }));
	downloadFrom(url, name);
	window.setTimeout(() => URL.revokeObjectURL(url), 1e4);
}
/** Saves what is at an address. */
function downloadFrom(url, name) {
	const a = document.createElement("a");
	a.href = url;
	a.download = name.replace(/[^\w.-]+/g, "_").slice(-120);
	document.body.append(a);
	a.click();
	a.remove();
}
// src/sections/cards.ts
var isCard = (s) => s.kind === "facts" && s.style === "card";
/** Sections one by one; small cards that follow each other together, so that they share their widths. */
function rowsOf$2(sections) {
	const rows = [];
	for (const s of sections) {
		const last = rows.at(-1);
		if (isCard(s) && last && isCard(last[0])) last.push(s);
		else rows.push([s]);
	}
	return rows;
}
/** Names of the facts that are shown. */
var namesOf = (s) => Object.keys(s.values).filter((n) => !s.hidden?.includes(n));
/** The first count of a small card, shown after its title where the card has more values. */
function cardCount(s) {
	const list = namesOf(s);
	return s.style === "card" && list.length > 1 ? list.find((n) => s.units?.[n] === "count") : void 0;
}
/** How many values after the first multiply to it: those up to where the product fits, else none; two where the first is unknown. */
function factorCount(values) {
	const [whole, ...rest] = values;
	if (typeof whole !== "number") return Math.min(2, rest.length);
	let product = 1;
	for (let i = 0; i < rest.length; i++) {
		const v = rest[i];
		if (typeof v !== "number") break;
		product *= v;
		if (i > 0 && Math.abs(product - whole) <= Math.max(Math.abs(whole) * .01, 1e-6)) return i + 1;
	}
	return 0;
}
// src/sections/value.tsx
var SIGN = {
	estimated: "≈",
	partial: "≈",
	lower_bound: "≥"
};
var WORD = {
	estimated: "Estimated",
	partial: "Partly modeled",
	unverified: "Unverified limit",
	flagged: "Above its limit",
	unknown: "Unknown",
	lower_bound: "At least",
	incomplete: "Incomplete"
};
/** The reason of a mark, as a tooltip. */
function whyText(mark) {
	return mark ? mark.why ? `${WORD[mark.state]}: ${mark.why}` : WORD[mark.state] : "";
}
/** The signs of a mark around a number that is already formatted. */
function Marked({ mark, text = "", children }) {
	if (!mark) return /* @__PURE__ */ a($, { children });
	const sign = text.startsWith("<") ? void 0 : SIGN[mark.state];
	return /* @__PURE__ */ a("span", {
		class: `marked ${mark.state}`,
		children: [
			sign && /* @__PURE__ */ a("span", {
				class: "sign",
				children: [sign, " "]
			}),
			children,
			mark.state === "unverified" && /* @__PURE__ */ a("sup", { children: "?" }),
			mark.state === "flagged" && /* @__PURE__ */ a("span", {
				class: "flag",
				role: "img",
				"aria-label": "flagged",
				children: "⚑"
			}),
			mark.state === "incomplete" && /* @__PURE__ */ a("span", {
				class: "hatch",
				role: "img",
				"aria-label": "incomplete"
			})
		]
	});
}
/** A single value (in facts, tiles, tooltips) in the unit that suits it, the exact figure on hover. */
function Value({ value, unit = "", mark, doc }) {
	const why = whyText(mark);
	if (value === null || value === void 0) {
		const reason = why || "Not known from this recording.";
		return /* @__PURE__ */ a("span", {
			class: "unknown",
			tabIndex: 0,
			"data-tip": reason,
			"aria-label": `unknown: ${reason}`,
			children: "—"
		});
	}
	if (typeof value !== "number") {
		const text = typeof value === "boolean" ? value ? "yes" : "no" : value;
		return /* @__PURE__ */ a("span", {
			class: "value text-value",
			"data-tip": [doc, why].filter(Boolean).join("\n") || void 0,
			children: /* @__PURE__ */ a(Marked, {
				mark,
				children: /* @__PURE__ */ a(Text, { text })
			})
		});
	}
	const parts = unit === "" ? plainNumber(value) : humanParts(value, unit);
	return /* @__PURE__ */ a("span", {
		class: "value",
		"data-tip": [
			doc,
			unit ? exact(value, unit) : "",
			why
		].filter(Boolean).join("\n") || void 0,
		children: /* @__PURE__ */ a(Marked, {
			mark,
			text: parts.text,
			children: [parts.text, parts.unit && /* @__PURE__ */ a("span", {
				class: "unit",
				children: [" ", parts.unit]
			})]
		})
	});
}
/** A number without a unit is an id, a version or a count of something: whole ones stay whole. */
var plainNumber = (value) => Number.isInteger(value) ? humanParts(value, "count") : humanParts(value, "");
// src/sections/facts.tsx
var labelOf$1 = (s, name) => s.labels?.[name] ?? (name[0]?.toUpperCase() ?? "") + name.slice(1).replace(/_(ns|pct)$/, "").replace(/_/g, " ");
function Fact({ s, name }) {
	const value = /* @__PURE__ */ a(Value, {
		value: s.values[name] ?? null,
		unit: s.units?.[name] ?? "",
		mark: s.marks?.[name],
		doc: s.docs?.[name]
	});
	const link = s.value_links?.[name];
	return link ? /* @__PURE__ */ a(ViewLink, {
		view: linkView(link),
		class: "link",
		children: value
	}) : value;
}
/** What a value was in the baseline, and by how much it changed: `was 4.1 ms, +3.2 %`. */
function baseText(s, name) {
	const [was, now, unit] = [
		s.base?.[name],
		s.values[name],
		s.units?.[name] ?? ""
	];
	if (was === void 0 || was === null || was === now) return "";
	const text = typeof was === "number" ? human(was, unit || (Number.isInteger(was) ? "count" : "")) : String(was);
	const part = typeof was === "number" && typeof now === "number" && was && unit !== "ratio" && unit !== "%" ? (now - was) / Math.abs(was) : null;
	return part === null ? `was ${text}` : `was ${text}, ${part > 0 ? "+" : ""}${human(part, "ratio")}`;
}
function Was({ s, name }) {
	const text = baseText(s, name);
	return text ? /* @__PURE__ */ a("div", {
		class: "was",
		children: text
	}) : null;
}
/** `lead` is shown in an equation without a text; a text equal to `headline`, which the head of the page shows, is left out. */
function Facts({ s: section, lead, headline }) {
	const s = section.text && section.text === headline && section.style !== "equation" ? {
		...section,
		text: ""
	} : section;
	switch (s.style) {
		case "tiles": return /* @__PURE__ */ a(Tiles, {
			s,
			list: namesOf(s)
		});
		case "equation": return /* @__PURE__ */ a(Equation, {
			s,
			lead: lead ?? ""
		});
		case "split": return /* @__PURE__ */ a(Split, { s });
		case "card": return /* @__PURE__ */ a(SmallCard, { s });
		default: return /* @__PURE__ */ a(FactList, {
			s,
			list: namesOf(s)
		});
	}
}
function FactList({ s, list }) {
	return /* @__PURE__ */ a($, { children: [s.text && /* @__PURE__ */ a("p", {
		class: "facts-text",
		children: /* @__PURE__ */ a(Text, { text: s.text })
	}), /* @__PURE__ */ a("dl", {
		class: "facts",
		children: list.map((name) => /* @__PURE__ */ a("div", {
			class: "fact",
			children: [/* @__PURE__ */ a("dt", {
				"data-tip": s.docs?.[name],
				children: labelOf$1(s, name)
			}), /* @__PURE__ */ a("dd", { children: [
				/* @__PURE__ */ a(Fact, {
					s,
					name
				}),
				/* @__PURE__ */ a(Was, {
					s,
					name
				}),
				s.notes?.[name] && /* @__PURE__ */ a("span", {
					class: "fact-note",
					children: /* @__PURE__ */ a(Text, { text: s.notes[name] })
				})
			] })]
		}))
	})] });
}
function Tiles({ s, list }) {
	return /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("div", {
		class: "tiles",
		children: list.map((name) => /* @__PURE__ */ a("div", {
			class: "tile",
			children: [
				/* @__PURE__ */ a("div", {
					class: "tile-label",
					"data-tip": s.docs?.[name],
					children: [s.colors?.[name] && /* @__PURE__ */ a(Swatch, { name: s.colors[name] }), labelOf$1(s, name)]
				}),
				/* @__PURE__ */ a("div", {
					class: `tile-value ${isLong(s, name) ? "long" : ""}`,
					children: /* @__PURE__ */ a(Fact, {
						s,
						name
					})
				}),
				/* @__PURE__ */ a(Was, {
					s,
					name
				}),
				s.notes?.[name] && /* @__PURE__ */ a("div", {
					class: "tile-note",
					children: /* @__PURE__ */ a(Text, { text: s.notes[name] })
				})
			]
		}))
	}), s.text && /* @__PURE__ */ a("p", {
		class: "facts-text below",
		children: /* @__PURE__ */ a(Text, { text: s.text })
	})] });
}
/** Whether a number is too long for a tile at full size, say the parameters of a model. */
var isLong = (s, name) => {
	const value = s.values[name];
	return typeof value === "number" && human(value, s.units?.[name] ?? "").length > 11;
};
var LONG_TEXT = 130;
function Equation({ s, lead }) {
	const all = namesOf(s);
	const values = all.map((n) => typeof s.values[n] === "number" ? s.values[n] : null);
	const ratios = all.findIndex((n, i) => i > 0 && (s.units?.[n] ?? "") !== "ratio");
	const count = Math.min(factorCount(values), ratios < 0 ? all.length - 1 : ratios - 1);
	const known = values.slice(1, 1 + count).some((v) => v !== null);
	const [first, factors, rest] = [
		all[0],
		known ? all.slice(1, 1 + count) : [],
		all.slice(1 + count)
	];
	const text = s.text || lead;
	const long = text.length > LONG_TEXT;
	return /* @__PURE__ */ a("div", {
		class: `equation ${rest.length > 3 ? "many" : ""} ${long ? "text-below" : ""}`,
		children: [
			/* @__PURE__ */ a("div", {
				class: "equation-main",
				children: [
					first && /* @__PURE__ */ a("div", {
						class: "equation-total",
						children: [
							/* @__PURE__ */ a("div", {
								class: "headline-number",
								children: /* @__PURE__ */ a(Fact, {
									s,
									name: first
								})
							}),
							/* @__PURE__ */ a("div", {
								class: "equation-label",
								"data-tip": s.docs?.[first],
								children: labelOf$1(s, first)
							}),
							/* @__PURE__ */ a(Was, {
								s,
								name: first
							})
						]
					}),
					factors.map((name, i) => {
						const v = s.values[name];
						return /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("span", {
							class: "operator",
							"aria-hidden": "true",
							children: i === 0 ? "=" : "×"
						}), /* @__PURE__ */ a("div", {
							class: "factor",
							children: [
								/* @__PURE__ */ a("div", {
									class: "tile-label",
									"data-tip": s.docs?.[name],
									children: labelOf$1(s, name)
								}),
								/* @__PURE__ */ a("div", {
									class: "factor-value",
									children: /* @__PURE__ */ a(Fact, {
										s,
										name
									})
								}),
								typeof v === "number" && /* @__PURE__ */ a("div", {
									class: "track",
									children: /* @__PURE__ */ a("span", { style: {
										width: `${Math.min(100, Math.max(0, v * 100))}%`,
										background: paint(s.colors?.[name] ?? "bar-ink")
									} })
								}),
								/* @__PURE__ */ a(Was, {
									s,
									name
								}),
								s.notes?.[name] && /* @__PURE__ */ a("div", {
									class: "tile-note",
									children: /* @__PURE__ */ a(Text, { text: s.notes[name] })
								})
							]
						})] });
					}),
					text && !long && /* @__PURE__ */ a("p", {
						class: "equation-text",
						children: /* @__PURE__ */ a(Text, { text })
					})
				]
			}),
			rest.length > 0 && /* @__PURE__ */ a("div", {
				class: "equation-tiles",
				children: /* @__PURE__ */ a(Tiles, {
					s: {
						...s,
						text: ""
					},
					list: rest
				})
			}),
			long && /* @__PURE__ */ a("p", {
				class: "equation-text below",
				children: /* @__PURE__ */ a(Text, { text })
			})
		]
	});
}
function Split({ s }) {
	const parts = namesOf(s).map((name) => ({
		name,
		value: s.values[name],
		unit: s.units?.[name] ?? ""
	}));
	const whole = parts.reduce((sum, p) => sum + (typeof p.value === "number" ? Math.max(0, p.value) : 0), 0);
	const share = (v) => typeof v === "number" && whole > 0 ? Math.max(0, v) / whole : 0;
	return /* @__PURE__ */ a($, { children: [
		/* @__PURE__ */ a("div", {
			class: "split",
			role: "img",
			"aria-label": parts.map((p) => `${labelOf$1(s, p.name)} ${human(p.value, p.unit)}`).join(", "),
			children: parts.filter((p) => share(p.value) > 0).map((p) => /* @__PURE__ */ a("span", {
				class: s.colors?.[p.name] === "idle" ? "idle" : "",
				style: {
					flexGrow: share(p.value),
					background: s.colors?.[p.name] === "idle" ? void 0 : paint(s.colors?.[p.name])
				},
				"data-tip": `${labelOf$1(s, p.name)}  ${human(p.value, p.unit)}, ${human(share(p.value), "ratio")}`
			}))
		}),
		/* @__PURE__ */ a("div", {
			class: "legend",
			children: parts.map((p) => /* @__PURE__ */ a("div", {
				class: "legend-item",
				"data-tip": s.docs?.[p.name],
				children: [
					/* @__PURE__ */ a(Swatch, { name: s.colors?.[p.name] ?? "other" }),
					/* @__PURE__ */ a("span", {
						class: "legend-label",
						children: labelOf$1(s, p.name)
					}),
					/* @__PURE__ */ a("span", {
						class: "legend-value",
						children: /* @__PURE__ */ a(Fact, {
							s,
							name: p.name
						})
					}),
					typeof p.value === "number" && whole > 0 && /* @__PURE__ */ a("span", {
						class: "legend-share",
						children: human(share(p.value), "ratio")
					}),
					/* @__PURE__ */ a(Was, {
						s,
						name: p.name
					})
				]
			}))
		}),
		s.text && /* @__PURE__ */ a("p", {
			class: "facts-text below",
			children: /* @__PURE__ */ a(Text, { text: s.text })
		})
	] });
}
var Swatch = ({ name }) => /* @__PURE__ */ a("span", {
	class: `swatch ${name === "idle" ? "idle" : PALE.has(name) ? "pale" : ""}`,
	style: name === "idle" ? void 0 : { background: paint(name) }
});
/** The count of a small card, as a link where it has one. */
function CardCount({ s }) {
	const name = cardCount(s);
	return name ? /* @__PURE__ */ a("span", {
		class: "card-count",
		"data-tip": labelOf$1(s, name),
		"aria-label": labelOf$1(s, name),
		children: /* @__PURE__ */ a(Fact, {
			s,
			name
		})
	}) : null;
}
/** Two large values, then the rest as short lines; ratios with a bar. */
function SmallCard({ s }) {
	const list = namesOf(s).filter((n) => n !== cardCount(s));
	const member = Object.values(s.colors ?? {})[0];
	const large = list.filter((n) => typeof s.values[n] === "number" && s.units?.[n] !== "ratio" && s.units?.[n] !== "count").slice(0, 2);
	const rest = list.filter((n) => !large.includes(n));
	const bar = (name) => {
		const v = s.values[name];
		return s.units?.[name] === "ratio" && typeof v === "number" ? /* @__PURE__ */ a("div", {
			class: "track small",
			children: /* @__PURE__ */ a("span", { style: {
				width: `${Math.min(100, Math.max(0, v * 100))}%`,
				background: paint(s.colors?.[name] ?? member ?? "bar-ink")
			} })
		}) : null;
	};
	return /* @__PURE__ */ a("div", {
		class: "small-card",
		children: [
			large.length > 0 && /* @__PURE__ */ a("div", {
				class: "small-large",
				children: large.map((n) => /* @__PURE__ */ a("span", {
					"data-tip": labelOf$1(s, n),
					children: [/* @__PURE__ */ a(Fact, {
						s,
						name: n
					}), /* @__PURE__ */ a(Was, {
						s,
						name: n
					})]
				}))
			}),
			rest.map((name) => /* @__PURE__ */ a("div", {
				class: "small-row",
				children: [
					/* @__PURE__ */ a("div", {
						class: "small-line",
						children: [/* @__PURE__ */ a("span", {
							"data-tip": s.docs?.[name],
							children: labelOf$1(s, name)
						}), /* @__PURE__ */ a(Fact, {
							s,
							name
						})]
					}),
					/* @__PURE__ */ a(Was, {
						s,
						name
					}),
					bar(name),
					s.notes?.[name] && /* @__PURE__ */ a("div", {
						class: "tile-note",
						children: /* @__PURE__ */ a(Text, { text: s.notes[name] })
					})
				]
			})),
			s.text && /* @__PURE__ */ a("p", {
				class: "facts-text below",
				children: /* @__PURE__ */ a(Text, { text: s.text })
			})
		]
	});
}
/** The mark of a small card's title: the shape of what it is about. */
function CardMark({ s }) {
	const member = s.style === "card" ? Object.values(s.colors ?? {})[0] : void 0;
	return member && MARKS[member] ? /* @__PURE__ */ a(Mark, {
		shape: MARKS[member],
		color: paint(member)
	}) : null;
}
// src/sections/findings.tsx
/** What the savings are, and what they come to together where there are several. */
function findingsSubtitle(s) {
	const words = s.subtitle || (!s.findings.length ? "" : s.saves === "memory" ? "memory it could free, at most" : "saving per step, at most");
	const shown = s.findings.filter((f) => !f.hidden).length;
	return [words, typeof s.combined_ns === "number" && shown > 1 ? `${shown === 2 && s.findings.length === 2 ? "both" : `${shown === s.findings.length ? "these" : "the first"} ${shown}`} together **${human(s.combined_ns, "ns")}**` : ""].filter(Boolean).join("; ");
}
function Findings({ s }) {
	const memory = s.saves === "memory";
	const largest = Math.max(1, ...s.findings.map((f) => savingOf(f, memory) ?? 0));
	if (!s.findings.length) return /* @__PURE__ */ a("p", {
		class: "section-empty",
		children: /* @__PURE__ */ a(Text, { text: s.empty || "No finding." })
	});
	return /* @__PURE__ */ a("ol", {
		class: "findings",
		children: s.findings.map((f, i) => /* @__PURE__ */ a($, { children: [groupOf(f) && groupOf(f) !== groupOf(s.findings[i - 1]) && /* @__PURE__ */ a("li", {
			class: "finding-group",
			"data-tip": GROUPS$2[groupOf(f)],
			children: groupOf(f)
		}), /* @__PURE__ */ a(FindingItem, {
			f,
			largest,
			memory,
			whole: memory ? "the peak" : /step/.test(s.subtitle ?? "step") ? "step" : "the time"
		})] }))
	});
}
var GROUPS$2 = {
	"Possible, not proven": "The recording makes the cause likely but does not prove it.",
	"Hidden behind other work": "By replay of all dependencies, fixing one of these alone saves next to nothing: other work holds the step."
};
function groupOf(f) {
	return f?.hidden ? "Hidden behind other work" : f?.candidate ? "Possible, not proven" : "";
}
/** How a saving is known, in words. */
function basisOf(f, whole) {
	const per = whole === "step" ? ", per step" : "";
	return typeof f.removed_ns === "number" ? `by replay of all dependencies${per}; it takes ${human(f.removed_ns, "ns")}` : `at most${per}`;
}
function savingOf(f, memory) {
	return (memory ? f.saving_bytes : f.saving_ns) ?? null;
}
function FindingItem({ f, largest, memory, whole }) {
	const saving = savingOf(f, memory);
	const parts = saving === null ? null : partsBeside(saving, memory ? "B" : "ns", largest);
	return /* @__PURE__ */ a("li", {
		class: "finding",
		"data-rule": f.rule,
		children: [/* @__PURE__ */ a("div", {
			class: "finding-left",
			children: [
				/* @__PURE__ */ a("div", {
					class: "saving",
					"data-tip": saving === null ? "This recording does not show how much this saves." : basisOf(f, whole),
					children: parts === null ? "—" : /* @__PURE__ */ a($, { children: [
						"−",
						parts.text,
						/* @__PURE__ */ a("span", {
							class: "unit",
							children: [" ", parts.unit]
						})
					] })
				}),
				/* @__PURE__ */ a("div", {
					class: "track thin",
					children: /* @__PURE__ */ a("span", { style: {
						width: saving === null ? "0" : `max(1.5px, ${saving / largest * 100}%)`,
						background: paint(f.color)
					} })
				}),
				typeof f.share === "number" && /* @__PURE__ */ a("div", {
					class: "tile-note",
					children: [
						human(f.share, "ratio"),
						" of ",
						whole
					]
				})
			]
		}), /* @__PURE__ */ a("div", {
			class: "finding-right",
			children: [
				/* @__PURE__ */ a("h3", { children: [f.candidate && /* @__PURE__ */ a("span", {
					class: "tag",
					children: "Possible"
				}), /* @__PURE__ */ a(Text, { text: f.title })] }),
				/* @__PURE__ */ a("p", { children: /* @__PURE__ */ a(Text, { text: f.evidence }) }),
				/* @__PURE__ */ a("div", {
					class: "finding-foot",
					children: [
						f.fix && /* @__PURE__ */ a(Copy, {
							class: "fix",
							what: "the fix",
							text: () => f.fix,
							label: `Copy: ${f.fix}`,
							children: /* @__PURE__ */ a("code", { children: f.fix })
						}),
						f.rows && /* @__PURE__ */ a(ReportLink, {
							link: f.rows,
							fallback: "Its rows"
						}),
						f.link && /* @__PURE__ */ a(ReportLink, {
							link: f.link,
							fallback: "Evidence"
						})
					]
				})
			]
		})]
	});
}
// src/sections/figure/bars.ts
var isPlain = (v) => typeof v === "object" && v !== null && !Array.isArray(v);
/** px that a bar is thick at most: horizontal, vertical */
var MOST$3 = {
	h: 44,
	v: 110
};
var isBar = (t) => t["type"] === "bar";
/** Few categories in a large figure: bars keep a calm width and the room goes between them. Changes traces and layout in place. */
function capBars(data, layout) {
	const bars = data.filter(isBar);
	const first = bars[0];
	if (!first) return;
	const lying = first["orientation"] === "h";
	const places = new Set(bars.flatMap((t) => Array.isArray(t[lying ? "y" : "x"]) ? t[lying ? "y" : "x"] : []));
	const axis = layout[lying ? "yaxis" : "xaxis"];
	if (!places.size || axis["type"] !== "category" && ![...places].every((p) => typeof p === "string")) return;
	const margin = layout["margin"] ?? {};
	const band = (lying ? Number(layout["height"]) - (margin["t"] ?? 10) - (margin["b"] ?? 46) : Number(layout["width"]) - (margin["l"] ?? 58) - (margin["r"] ?? 14)) / places.size;
	if (!(band > 0)) return;
	const most = (lying ? MOST$3.h : MOST$3.v) / band;
	const grouped = (layout["barmode"] ?? "group") === "group" ? new Set(bars.map((t) => t["offsetgroup"] ?? t)).size : 1;
	layout["bargap"] = Math.max(Number(layout["bargap"] ?? .3), 1 - most * grouped);
	for (const t of bars) if (typeof t["width"] === "number" && t["offset"] === void 0) t["width"] = Math.min(t["width"], most);
}
/** px of a letter beside a bar and of one of a name, about; around either; the least that bars keep of the room for them and their texts. */
var LETTER$2 = 6.6;
var NAME_LETTER = 7.3;
var AROUND$3 = 14;
var LEAST$4 = .25;
/** In a narrow figure, lying bars leave room for the texts beside them. Changes the layout in place. */
function roomForTexts(data, layout) {
	const width = Number(layout["width"]);
	const beside = data.filter((t) => isBar(t) && t["orientation"] === "h" && t["textposition"] === "outside" && t["base"] === void 0 && Array.isArray(t["text"]) && Array.isArray(t["x"]));
	const axis = layout["xaxis"];
	const range = axis["range"];
	if (!beside.length || !(width > 0 && width < 700) || axis["type"] === "log" || !Array.isArray(range) || range[0] !== 0) return;
	const margin = {
		l: 58,
		r: 14,
		...layout["margin"]
	};
	const names = beside.flatMap((t) => Array.isArray(t["y"]) ? t["y"].map((y) => String(y).length) : []);
	const left = Math.min(margin.l, Math.max(0, ...names) * NAME_LETTER + AROUND$3);
	const room = width - left - margin.r;
	const ends = beside.flatMap((t) => t["x"].map((x, i) => {
		const text = String(t["text"][i] ?? "").replace(/<[^>]*>/g, "");
		return (Number(x) || 0) / Math.max(LEAST$4, 1 - (text.length * LETTER$2 + AROUND$3) / room);
	}));
	layout["margin"] = {
		...margin,
		l: left
	};
	layout["xaxis"] = {
		...axis,
		range: [0, Math.max(Number(range[1]), ...ends)]
	};
}
/** Part of the way to the next word of its height that a word in the middle of a gap may take. */
var OF_GAP = .5;
/** In a narrow figure, words that would run over the names or the edge keep their first number, and words in gaps that are too short go. In place. */
function fitWords(layout) {
	const axis = layout["xaxis"];
	const { range } = axis;
	const words = layout["annotations"];
	const width = Number(layout["width"]);
	if (!(width > 0 && width < 700) || !Array.isArray(range) || !Array.isArray(words) || axis["type"] === "log") return;
	const margin = {
		l: 58,
		r: 14,
		...layout["margin"]
	};
	const scale = Math.max(0, width - margin.l - margin.r) / (Number(range[1]) - Number(range[0]));
	const lengthOf = (text) => String(text).replace(/<[^>]*>/g, "").length * LETTER$2;
	const centered = words.filter((w) => isPlain(w) && typeof w["x"] === "number" && (w["xanchor"] ?? "center") === "center" && !w["xref"]);
	const apart = (w) => Math.min(...centered.filter((o) => o !== w && o["y"] === w["y"]).map((o) => Math.abs(Number(o["x"]) - Number(w["x"]))));
	layout["annotations"] = words.flatMap((w) => {
		if (!isPlain(w) || typeof w["x"] !== "number" || w["xref"]) return [w];
		if (centered.includes(w)) return lengthOf(w["text"]) > apart(w) * scale * OF_GAP ? [] : [w];
		const [at, long] = [(w["x"] - Number(range[0])) * scale, lengthOf(w["text"]) + AROUND$3];
		return [(w["xanchor"] === "right" ? long > at : at + long > width - margin.l) ? {
			...w,
			text: String(w["text"]).split("  ")[0]
		} : w];
	});
}
/** px by which the names beside an axis may take more than their margin. */
var BESIDE_NAMES = 30;
/** A title below a figure that is wider than its room goes on in further lines; its unit stays with the word before. In place. */
function fitTitle(layout) {
	const axis = layout["xaxis"];
	const title = isPlain(axis["title"]) ? axis["title"] : {};
	const text = String(title["text"] ?? "");
	const width = Number(layout["width"]);
	const margin = {
		l: 58,
		r: 14,
		...layout["margin"]
	};
	const room = (width - margin.l + margin.r - BESIDE_NAMES) / LETTER$2;
	if (!(width > 0 && width < 700) || axis["domain"] || text.includes("<") || text.length <= room) return;
	const lines = [];
	for (const word of text.replace(/, /g, ",\xA0").split(" ")) {
		const line = lines.at(-1);
		if (line !== void 0 && line.length + 1 + word.length <= room) lines[lines.length - 1] = `${line} ${word}`;
		else lines.push(word);
	}
	layout["xaxis"] = {
		...axis,
		title: {
			...title,
			text: lines.join("<br>")
		}
	};
}
/** An edge around hatched bars, so that a pale one is seen as a bar. In place. */
function edgeHatched(trace, edge) {
	const marker = trace["marker"];
	if (!isBar(trace) || !isPlain(marker) || !isPlain(marker["pattern"])) return;
	const shape = marker["pattern"]["shape"];
	const line = isPlain(marker["line"]) ? marker["line"] : {};
	const at = (v, i) => Array.isArray(v) ? v[i] : v;
	if (Array.isArray(shape)) trace["marker"] = {
		...marker,
		line: {
			...line,
			color: shape.map((s, i) => s ? edge : at(line["color"], i) ?? edge),
			width: shape.map((s, i) => s ? 1 : at(line["width"], i) ?? 0)
		}
	};
	else if (shape) trace["marker"] = {
		...marker,
		line: {
			...line,
			color: edge,
			width: 1
		}
	};
}
// src/sections/figure/boxes.ts
var TOKENS = palette_default.tokens;
var light = (name) => TOKENS[name][0].toUpperCase();
/** The steps of the scale of efficiency, 0 to 100 %. */
var SCALE = [
	"eff-0",
	"eff-25",
	"eff-50",
	"eff-75",
	"eff-100"
];
var NESTED = /* @__PURE__ */ new Set([
	"icicle",
	"treemap",
	"sunburst"
]);
var isHex = (value) => typeof value === "string" && /^#[0-9a-f]{6}$/i.test(value);
/** Black or white, whichever reads better on a `#rrggbb` color. */
function onColor(hex) {
	const [r, g, b] = [
		1,
		3,
		5
	].map((i) => (Number.parseInt(hex.slice(i, i + 2), 16) / 255) ** 2.2);
	return .2126 * r + .7152 * g + .0722 * b > .2 ? "#111418" : "#FFFFFF";
}
/** `part` of `over` mixed into `under`, both `#rrggbb`. */
function mixed(over, under, part) {
	const channel = (hex, i) => Number.parseInt(hex.slice(i, i + 2), 16);
	return "#" + [
		1,
		3,
		5
	].map((i) => Math.round(channel(over, i) * part + channel(under, i) * (1 - part)).toString(16).padStart(2, "0")).join("");
}
var colorsOf = (trace) => {
	const colors = trace["marker"]?.["colors"];
	return Array.isArray(colors) ? colors : [];
};
/** What the colors of a figure's boxes mean, by the light colors of its data; null where it has no such boxes. */
function boxScale(data) {
	const nested = data.filter((t) => NESTED.has(t["type"]));
	if (!nested.length) return null;
	const seen = new Set(nested.flatMap((t) => colorsOf(t).map((c) => String(c).toUpperCase())));
	return {
		efficiency: SCALE.some((name) => seen.has(light(name))),
		unknown: seen.has(light("idle")),
		self: nested.some((t) => ownParts(t) !== null)
	};
}
/** For each box its value without those of its children; null where values are not totals. */
function ownParts(trace) {
	const [ids, parents, values] = [
		trace["ids"] ?? trace["labels"],
		trace["parents"],
		trace["values"]
	];
	if (trace["branchvalues"] !== "total" || !Array.isArray(ids) || !Array.isArray(parents) || !Array.isArray(values)) return null;
	const inner = /* @__PURE__ */ new Map();
	parents.forEach((p, i) => inner.set(p, (inner.get(p) ?? 0) + Number(values[i])));
	return values.map((v, i) => Math.max(0, Number(v) - (inner.get(ids[i]) ?? 0)));
}
/** The id of the box around several roots. */
var ALL$1 = "(all)";
/** Puts several roots into one box named All, for which Plotly else leaves an empty row. In place; one root stays as it is. */
function oneRoot(trace, color) {
	const [ids, parents, values] = [
		trace["ids"],
		trace["parents"],
		trace["values"]
	];
	if (!Array.isArray(ids) || !Array.isArray(parents) || !Array.isArray(values)) return;
	const roots = parents.flatMap((p, i) => p === "" || p === null ? [i] : []);
	if (roots.length < 2) return;
	const first = {
		ids: ALL$1,
		labels: "All",
		text: "All",
		hovertext: "<b>All</b>",
		customdata: "",
		parents: "",
		values: roots.reduce((sum, i) => sum + Number(values[i]), 0)
	};
	for (const [name, value] of Object.entries(first)) {
		const list = name === "parents" ? parents.map((p) => p === "" || p === null ? ALL$1 : p) : trace[name];
		if (Array.isArray(list)) trace[name] = [value, ...list];
	}
	const marker = trace["marker"] ?? {};
	const each = (value, self) => Array.isArray(value) ? [self, ...value] : value;
	const line = marker["line"] ?? {};
	trace["marker"] = {
		...marker,
		colors: each(marker["colors"], color),
		line: {
			...line,
			color: each(line["color"], color),
			width: each(line["width"], 0)
		}
	};
	if (typeof trace["maxdepth"] === "number" && trace["maxdepth"] > 0) trace["maxdepth"] += 1;
}
/** Colors by the self part of each box: the surface where children hold all of it, the full color at the largest. */
function ownColors(trace, full, none) {
	const self = ownParts(trace);
	if (!self) return null;
	const most = Math.max(...self, 0);
	return self.map((v) => mixed(full, none, most > 0 ? .08 + .92 * (v / most) : 0));
}
/** Paints one trace of boxes in place; hatched where nothing is known (the color `idle`) or only a part is modeled. */
function paintBoxes(trace, paint, token, partial) {
	const marker = trace["marker"] ?? {};
	const colors = (paint === "own" ? ownColors(trace, token("compute"), token("sunken")) : null) ?? colorsOf(trace);
	trace["leaf"] = {
		opacity: 1,
		...trace["leaf"] ?? {}
	};
	if (!colors.length || !colors.every(isHex)) return;
	const idle = token("idle").toUpperCase();
	const unknown = colors.map((c) => c.toUpperCase() === idle);
	const hatched = unknown.map((u, i) => u || partial(i));
	trace["marker"] = {
		...marker,
		colors,
		...paint === "given" && hatched.some(Boolean) ? { pattern: {
			shape: hatched.map((h) => h ? "/" : ""),
			fgcolor: unknown.map((u) => token(u ? "idle-hatch" : "idle")),
			fillmode: "overlay",
			size: 7,
			solidity: .3
		} } : {}
	};
	trace["insidetextfont"] = { color: colors.map(onColor) };
	if (colors[0]) trace["outsidetextfont"] = { color: onColor(colors[0]) };
}
// src/sections/figure/ticks.ts
var FEW = 2;
var BINARY = [
	"B",
	"KiB",
	"MiB",
	"GiB",
	"TiB"
];
var NARROW = " ";
var binary = (v) => {
	const step = Math.min(Math.floor(Math.log2(v) / 10 + 1e-9), BINARY.length - 1);
	return number(v / 1024 ** step, 0) + NARROW + BINARY[step];
};
/** A short text of a tick: `150 GB/s`, `2.5 TB/s`. */
var short$1 = (v, unit) => human(v, unit).replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
/** The unit that labels carry without its decimal prefix: `FLOP/s` of `1 TFLOP/s`; "" for plain numbers, null where they are none. */
function unitOf$3(value, text) {
	if (typeof value !== "number" || typeof text !== "string" || readQuantity(text) !== value) return null;
	const name = /[A-Za-zµ%/]+$/.exec(text.trim())?.[0] ?? "";
	return value >= 1e3 && /^[kMGTPE]./.test(name) ? name.slice(1) : name;
}
/** Steps inside a range given as powers of ten: 1, 2, 5 times the decades, powers of two for sizes, else nine to a decade. */
function steps(low, high, sizes) {
	const out = [];
	if (sizes) {
		for (let p = Math.ceil(low / Math.log10(2)); p * Math.log10(2) <= high; p++) if (p >= 0) out.push(2 ** p);
		return out;
	}
	for (const parts of [
		[
			1,
			2,
			5
		],
		[
			1,
			1.5,
			2,
			2.5,
			3,
			4,
			5,
			6,
			7,
			8,
			9
		],
		Array.from({ length: 90 }, (_, i) => 1 + i / 10)
	]) {
		out.length = 0;
		for (let d = Math.floor(low); d <= Math.floor(high); d++) for (const part of parts) {
			const at = Math.log10(part) + d;
			if (at >= low && at <= high) out.push(Number((part * 10 ** d).toPrecision(4)));
		}
		if (out.length > FEW) break;
	}
	return out;
}
/** A zoomed logarithmic axis with labels again, where fewer than three ticks are inside. */
function relabeled(axis) {
	const [values, texts, range] = [
		axis["tickvals"],
		axis["ticktext"],
		axis["range"]
	];
	if (axis["type"] !== "log" || !Array.isArray(values) || !Array.isArray(texts) || !Array.isArray(range)) return axis;
	const [low, high] = range.map(Number).sort((a, b) => a - b);
	if (!Number.isFinite(low) || !Number.isFinite(high) || high <= low) return axis;
	if (values.filter((v) => Math.log10(Number(v)) >= low && Math.log10(Number(v)) <= high).length > FEW) return axis;
	const sizes = texts.some((t) => String(t).endsWith("iB"));
	const units = new Set(values.map((v, i) => unitOf$3(v, texts[i])).filter((u) => u !== null));
	if (!sizes && units.size !== 1) return axis;
	const unit = [...units][0] ?? "";
	let at = steps(low, high, sizes);
	while (at.length > 7) at = at.filter((_, i) => i % 2 === 0);
	return {
		...axis,
		tickvals: at,
		ticktext: at.map((v) => sizes ? binary(v) : unit ? short$1(v, unit) : v >= 1e3 ? number(v, 0) : String(v))
	};
}
// src/sections/figure/template.ts
var FONT$1 = "system-ui, -apple-system, \"Segoe UI\", Roboto, \"Noto Sans\", sans-serif";
/** With what follows of a color that lets some of its ground through. */
var HEX = /#[0-9a-fA-F]{6}(?=(?:[0-9a-fA-F]{2})?\b)/g;
/** Every palette color in a value replaced by its partner; names and texts that hold no hex are untouched. */
function recolor(value, themed) {
	if (typeof value === "string") return value.includes("#") ? value.replace(HEX, themed) : value;
	if (Array.isArray(value)) return value.some((v) => typeof v === "object" || typeof v === "string" && v.includes("#")) ? value.map((v) => recolor(v, themed)) : value;
	if (isPlain(value)) return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, k === "customdata" || k === "ids" ? v : recolor(v, themed)]));
	return value;
}
/** `over` merged into `base`, objects merged. */
function merge(base, over) {
	const out = { ...base };
	for (const [k, v] of Object.entries(over)) out[k] = isPlain(v) && isPlain(out[k]) ? merge(out[k], v) : v;
	return out;
}
/** The key of the table row of a point: its customdata, or the first of it. */
function pointKey(custom) {
	const first = Array.isArray(custom) ? custom[0] : isPlain(custom) ? custom["key"] : custom;
	return first === null || first === void 0 || first === "" ? null : String(first);
}
function ready(s, look) {
	const raw = s.figure.layout ?? {};
	const axes = Object.keys(raw).filter((k) => /^[xy]axis\d*$/.test(k));
	for (const k of ["xaxis", "yaxis"]) if (!axes.includes(k)) axes.push(k);
	const axis = {
		gridcolor: look.token("line"),
		zeroline: false,
		linecolor: look.token("line-strong"),
		ticks: "",
		automargin: true,
		separatethousands: true,
		tickfont: {
			size: 11.5,
			color: look.token("ink-3")
		},
		title: {
			font: {
				size: 12,
				color: look.token("ink-3")
			},
			standoff: 8
		}
	};
	const layout = merge({
		font: {
			family: FONT$1,
			size: 12,
			color: look.token("ink-2")
		},
		paper_bgcolor: "rgba(0,0,0,0)",
		plot_bgcolor: "rgba(0,0,0,0)",
		margin: {
			l: 58,
			r: 14,
			t: 10,
			b: 46
		},
		showlegend: false,
		separators: ". ",
		hovermode: "closest",
		dragmode: look.drag,
		selections: [],
		newselection: { line: {
			color: look.token("accent"),
			width: 1.2,
			dash: "dot"
		} },
		autosize: true,
		bargap: .3,
		hoverlabel: {
			bgcolor: look.token("raised"),
			bordercolor: look.token("line-strong"),
			font: {
				family: FONT$1,
				color: look.token("ink"),
				size: 12
			},
			align: "left",
			namelength: 0
		},
		...Object.fromEntries(axes.map((k) => [k, axis]))
	}, recolor(raw, look.themed));
	layout["height"] = Math.max(look.height, s.height ?? 320);
	layout["width"] = look.width;
	layout["hoverlabel"] = merge(layout["hoverlabel"], { bgcolor: look.token("raised") });
	layout["showlegend"] = false;
	delete layout["template"];
	for (const k of axes) {
		const a = layout[k];
		if (a["type"] === "log" && !a["tickvals"] && a["dtick"] === void 0) layout[k] = {
			...a,
			dtick: 1,
			tickformat: a["tickformat"] ?? ",~f"
		};
		if (k.startsWith("y") && a["ticklabelstandoff"] === void 0) layout[k] = {
			...layout[k],
			ticklabelstandoff: 4
		};
	}
	const data = (s.figure.data ?? []).map((trace) => recolor(trace, look.themed));
	capBars(data, layout);
	roomForTexts(data, layout);
	fitWords(layout);
	fitTitle(layout);
	for (const trace of data) {
		contrast$1(trace, look.token("surface"));
		edgeHatched(trace, look.token("idle-hatch"));
		if (NESTED.has(trace["type"])) oneRoot(trace, look.token("sunken"));
		if (NESTED.has(trace["type"])) paintBoxes(trace, look.paint, look.token, (i) => look.partial.has(pointKey(trace["customdata"]?.[i]) ?? ""));
	}
	if (data.some((t) => NESTED.has(t["type"]))) layout["uniformtext"] = {
		minsize: 10,
		mode: "hide"
	};
	const drawn = data.map((trace) => look.keep ? filtered(trace, look.keep) : trace);
	applyZoom(layout, drawn, look.zoom);
	if (look.inside) for (const trace of drawn) stepBack(trace, look.inside);
	if (look.areas.length) layout["shapes"] = [...layout["shapes"] ?? [], ...look.areas.flatMap((area) => frame(area, layout, look))];
	if (look.covered) cover(look.covered, layout, look);
	const note = look.selected && s.notes && Object.hasOwn(s.notes, look.selected) ? s.notes[look.selected] : null;
	const ring = look.selected ? selection(drawn, look) : [];
	return {
		data: [
			...drawn,
			...note ? toLimit(note, layout, ring, look) : [],
			...ring
		],
		layout,
		point: pointOf(ring[0]),
		shows: ring.length > 0 || drawn.some((t) => Array.isArray(t["selectedpoints"]) && !look.inside)
	};
}
/** Text inside a bar reads on the bar, which lets some of the card through where it is pale; text outside on the card. */
function contrast$1(trace, surface) {
	const font = isPlain(trace["textfont"]) ? trace["textfont"] : {};
	const place = trace["textposition"] ?? "auto";
	const { color: fill, opacity } = isPlain(trace["marker"]) ? trace["marker"] : {};
	if (trace["type"] !== "bar" || place === "outside" || place === "none" || Array.isArray(place)) return;
	const { color, ...rest } = font;
	trace["textfont"] = rest;
	if (isHex(fill)) trace["insidetextfont"] = {
		...rest,
		color: onColor(typeof opacity === "number" && isHex(surface) ? mixed(fill, surface, opacity) : fill)
	};
	if (color !== void 0) trace["outsidetextfont"] = {
		...rest,
		color
	};
}
/** Points whose rows are filtered out become gaps; icicles and the like stay whole. */
function filtered(trace, keep) {
	const custom = trace["customdata"];
	if (!Array.isArray(custom) || ![
		"scatter",
		"scattergl",
		"bar",
		void 0
	].includes(trace["type"])) return trace;
	const gone = custom.map((c) => {
		const key = pointKey(c);
		return key !== null && !keep.has(key);
	});
	if (!gone.some(Boolean)) return trace;
	const side = trace["type"] === "bar" && trace["orientation"] === "h" ? "x" : "y";
	const values = trace[side];
	return Array.isArray(values) ? {
		...trace,
		[side]: values.map((v, i) => gone[i] ? null : v)
	} : trace;
}
function pointOf(ring) {
	if (!ring) return null;
	const first = (name) => ring[name][0];
	return {
		axes: String(ring["xaxis"] ?? "x").slice(1),
		x: first("x"),
		y: first("y"),
		radius: Number(ring["marker"]["size"][0]) / 2
	};
}
/** Points outside a selected area, faded in their place. */
function stepBack(trace, inside) {
	const custom = trace["customdata"];
	if (!Array.isArray(custom) || ![
		"scatter",
		"scattergl",
		"bar",
		void 0
	].includes(trace["type"])) return;
	trace["selectedpoints"] = custom.flatMap((c, i) => inside.has(pointKey(c) ?? "") ? [i] : []);
	trace["unselected"] = { marker: { opacity: .14 } };
}
/** The box of an area; an open end reaches to the edge of its axis. Nothing where the edge is not known. */
function frame(area, layout, look) {
	const ends = ["x", "y"].flatMap((letter) => {
		const axis = layout[`${letter}axis${area.axes}`];
		const range = isPlain(axis) && Array.isArray(axis["range"]) ? axis["range"] : [];
		const edge = (i) => isPlain(axis) && axis["type"] === "log" ? 10 ** range[i] : range[i];
		return area[letter].map((end, i) => end ?? edge(i));
	});
	if (!ends.every(Number.isFinite)) return [];
	const [x0, x1, y0, y1] = ends;
	return [{
		type: "rect",
		xref: `x${area.axes}`,
		yref: `y${area.axes}`,
		x0,
		x1,
		y0,
		y1,
		layer: "below",
		fillcolor: `${look.token("accent")}1A`,
		line: {
			color: look.token("accent"),
			width: 1.2
		}
	}];
}
/** Share of the axis that the text next to a stretch needs. */
var WORDS_ROOM = .2;
/** Tints a stretch of the x axis, with its text next to it, or inside where it takes nearly all of the axis. */
function cover(stretch, layout, look) {
	const axis = layout["xaxis"];
	const range = isPlain(axis) && Array.isArray(axis["range"]) ? axis["range"] : [];
	const [low, high] = [Number(range[0]), Number(range[1])];
	const [x0, x1] = [Math.max(stretch.start ?? low, low), Math.min(stretch.end ?? high, high)];
	if (!(x1 >= x0)) return;
	const accent = look.token("accent");
	layout["shapes"] = [...layout["shapes"] ?? [], {
		type: "rect",
		xref: "x",
		yref: "paper",
		x0,
		x1,
		y0: 0,
		y1: 1,
		layer: "above",
		fillcolor: `${accent}2E`,
		line: {
			color: accent,
			width: 1.2
		}
	}];
	if (!stretch.text) return;
	const right = (x0 + x1) / 2 > low + NEAR_END * (high - low);
	const inside = (right ? x0 - low : high - x1) < WORDS_ROOM * (high - low);
	layout["annotations"] = [...layout["annotations"] ?? [], {
		xref: "x",
		yref: "paper",
		x: inside ? (x0 + x1) / 2 : right ? x0 : x1,
		y: inside ? .8 : .5,
		text: `<b>${escaped(stretch.text)}</b>`,
		showarrow: false,
		xanchor: inside ? "center" : right ? "right" : "left",
		xshift: inside ? 0 : right ? -5 : 5,
		font: {
			size: 12,
			color: accent
		},
		bgcolor: `${look.token("surface")}CC`,
		borderpad: 1
	}];
}
/** Where a value lies on an axis that has a range, 0 to 1; null elsewhere. */
function fraction(axis, value) {
	const range = isPlain(axis) ? axis["range"] : null;
	if (!Array.isArray(range) || typeof range[0] !== "number" || typeof range[1] !== "number" || range[0] === range[1]) return null;
	return ((isPlain(axis) && axis["type"] === "log" ? Math.log10(value) : value) - range[0]) / (range[1] - range[0]);
}
var NEAR_END = .66;
var escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
/** A dotted line from the selected point to its limit, with the words at its side. The words go into the layout. */
function toLimit(note, layout, ring, look) {
	const end = note.limit;
	const axes = note.axis === "x2" ? "2" : "";
	const [xaxis, yaxis] = [layout[`xaxis${axes}`], layout[`yaxis${axes}`]];
	if (!xaxis || !yaxis || typeof end !== "number") return [];
	const across = axes === "2";
	const stop = across ? [end, note.y] : [note.x, end];
	const at = (axis, value) => axis["type"] === "log" ? Math.log10(value) : value;
	const middle = (axis, a, b) => (at(axis, a) + at(axis, b)) / 2;
	const sizes = ring.map((r) => Number([r["marker"]["size"]].flat()[0]) || 0);
	const radius = Math.max(8, ...sizes) / 2;
	const [from, to] = [fraction(yaxis, note.y), fraction(yaxis, end)];
	const reach = from === null || to === null || across ? Infinity : Math.abs(to - from) * Number(layout["height"]) * .6;
	const right = (fraction(xaxis, across ? Math.max(note.x, end) : note.x) ?? 0) > NEAR_END;
	const aside = reach < radius + 14 ? radius + 5 : 7;
	if (note.text) layout["annotations"] = [...layout["annotations"] ?? [], {
		xref: `x${axes}`,
		yref: `y${axes}`,
		x: across ? middle(xaxis, note.x, end) : at(xaxis, note.x),
		y: across ? at(yaxis, note.y) : middle(yaxis, note.y, end),
		text: `<b>${escaped(note.text)}</b>`,
		showarrow: false,
		font: {
			size: 12,
			color: look.token("accent")
		},
		bgcolor: `${look.token("surface")}CC`,
		borderpad: 1,
		...across ? {
			yanchor: "bottom",
			yshift: radius + 2
		} : {
			xanchor: right ? "right" : "left",
			xshift: right ? -aside : aside,
			yanchor: "middle",
			yshift: reach < radius + 14 ? radius + 6 : 0
		}
	}];
	return [{
		type: "scatter",
		mode: "lines",
		x: [note.x, stop[0]],
		y: [note.y, stop[1]],
		hoverinfo: "skip",
		showlegend: false,
		cliponaxis: false,
		...axes ? {
			xaxis: "x2",
			yaxis: "y2"
		} : {},
		line: {
			color: look.token("accent"),
			width: 1.6,
			dash: "2px,3px"
		}
	}];
}
/** The selected boxes in an accent line. */
function outline(trace, hits, accent) {
	const marker = trace["marker"] ?? {};
	const line = marker["line"] ?? {};
	const custom = trace["customdata"];
	trace["marker"] = {
		...marker,
		line: {
			color: custom.map((_, i) => hits.has(i) ? accent : line["color"]),
			width: custom.map((_, i) => hits.has(i) ? 2.4 : line["width"])
		}
	};
}
/** An accent ring around the selected points of scatter traces; other bars step back. */
function selection(data, look) {
	const out = [];
	for (const trace of data) {
		const custom = trace["customdata"];
		if (!Array.isArray(custom)) continue;
		const hits = custom.flatMap((c, i) => pointKey(c) === look.selected ? [i] : []);
		if (!hits.length) continue;
		if (trace["type"] === "bar") {
			if (look.inside) continue;
			trace["selectedpoints"] = hits;
			trace["unselected"] = { marker: { opacity: .45 } };
		} else if (NESTED.has(trace["type"])) outline(trace, new Set(hits), look.token("accent"));
		else if (trace["type"] === void 0 || trace["type"] === "scatter" || trace["type"] === "scattergl") {
			const [x, y] = [trace["x"], trace["y"]];
			if (!Array.isArray(x) || !Array.isArray(y)) continue;
			const size = trace["marker"]?.["size"];
			const of = (i) => Number(Array.isArray(size) ? size[i] : size) || 8;
			out.push({
				type: "scatter",
				mode: "markers",
				x: hits.map((i) => x[i]),
				y: hits.map((i) => y[i]),
				hoverinfo: "skip",
				showlegend: false,
				...trace["xaxis"] ? { xaxis: trace["xaxis"] } : {},
				...trace["yaxis"] ? { yaxis: trace["yaxis"] } : {},
				marker: {
					symbol: "circle-open",
					color: look.token("accent"),
					size: hits.map((i) => of(i) + 9),
					line: {
						width: 2.2,
						color: look.token("accent")
					},
					opacity: 1
				}
			});
		}
	}
	return out;
}
/** Zoom as text: `x:0.1~20;y2:3~4`, or `l:ID` for the level of an icicle. */
function zoomText(changes, before) {
	const now = new Map(before.split(";").filter(Boolean).map((p) => [p.slice(0, p.indexOf(":")), p.slice(p.indexOf(":") + 1)]));
	for (const [key, value] of Object.entries(changes)) {
		const range = /^([xy])axis(\d*)\.range\[([01])\]$/.exec(key);
		const auto = /^([xy])axis(\d*)\.(autorange|showspikes)$/.exec(key);
		if (range) {
			const name = range[1] + range[2];
			const ends = (now.get(name) ?? "~").split("~");
			ends[Number(range[3])] = typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
			now.set(name, ends.join("~"));
		} else if (auto && auto[3] === "autorange") now.delete(auto[1] + auto[2]);
		else if (key === "level") {
			if (value && value !== "(all)") now.set("l", String(value).replace(/[%;]/g, encodeURIComponent));
			else now.delete("l");
		}
	}
	return [...now].map(([k, v]) => `${k}:${v}`).join(";");
}
function applyZoom(layout, data, zoom) {
	for (const part of zoom.split(";")) {
		const range = /^([xy])(\d*):(.+)~(.+)$/.exec(part);
		if (range) {
			const axis = layout[`${range[1]}axis${range[2]}`];
			const ends = [range[3], range[4]].map((t) => Number.isFinite(Number(t)) ? Number(t) : t);
			if (isPlain(axis)) layout[`${range[1]}axis${range[2]}`] = relabeled({
				...axis,
				range: ends,
				autorange: false
			});
		} else if (part.startsWith("l:")) {
			for (const trace of data) if (NESTED.has(trace["type"])) trace["level"] = part.slice(2).replace(/%(25|3B)/g, decodeURIComponent);
		}
	}
}
/** Named traces of a figure that asks for a legend, as chips: name, light color, symbol. */
function legendOf(s) {
	if (s.figure.layout?.["showlegend"] !== true) return [];
	const seen = /* @__PURE__ */ new Map();
	for (const trace of s.figure.data ?? []) {
		const name = trace["name"];
		if (typeof name !== "string" || !name || trace["showlegend"] === false || seen.has(name)) continue;
		const marker = trace["marker"] ?? {};
		const line = trace["line"] ?? {};
		const color = [
			marker["color"],
			line["color"],
			trace["fillcolor"]
		].find((c) => typeof c === "string");
		const symbol = typeof marker["symbol"] === "string" ? marker["symbol"] : "";
		if (color) seen.set(name, {
			name,
			color,
			symbol: symbol.replace(/-open$/, ""),
			hatched: isPlain(marker["pattern"]),
			opacity: typeof marker["opacity"] === "number" ? marker["opacity"] : 1
		});
	}
	return [...seen.values()];
}
// src/sections/figure/area.ts
var LINKED = /* @__PURE__ */ new Set([
	"scatter",
	"scattergl",
	void 0
]);
var short = (value) => value === null ? "" : String(Number(value.toPrecision(4)));
var within$2 = (value, [low, high]) => (low === null || value >= low) && (high === null || value <= high);
/** The areas in a figure's text: `b:X0~X1~Y0~Y1`, `b2:…`; an empty end does not bound. */
function areasOf(text) {
	const out = [];
	for (const part of text.split(";")) {
		const found = /^b(\d*):([^;]+)$/.exec(part);
		const ends = found?.[2].split("~").map((t) => t === "" ? null : Number(t));
		if (!found || ends?.length !== 4 || ends.every((e) => e === null) || ends.some((e) => e !== null && !Number.isFinite(e))) continue;
		out.push({
			axes: found[1],
			x: [ends[0], ends[1]],
			y: [ends[2], ends[3]]
		});
	}
	return out;
}
/** The figure's text with these areas and no others. */
function withAreas(text, areas) {
	return [...text.split(";").filter((part) => part && !/^b\d*:/.test(part)), ...areas.map((a) => `b${a.axes}:${[...a.x, ...a.y].map(short).join("~")}`)].join(";");
}
/** The areas of Plotly's `range` of a finished box selection. */
function areasOfRange(range) {
	if (typeof range !== "object" || range === null) return [];
	return Object.entries(range).flatMap(([name, x]) => {
		const axes = /^x(\d*)$/.exec(name)?.[1];
		const y = axes === void 0 ? void 0 : range[`y${axes}`];
		if (!Array.isArray(x) || !Array.isArray(y)) return [];
		const [xs, ys] = [x, y].map((ends) => [...ends].sort((a, b) => a - b));
		return [...xs, ...ys].every(Number.isFinite) ? [{
			axes,
			x: xs,
			y: ys
		}] : [];
	});
}
var axesOf = (trace) => String(trace["xaxis"] ?? "x").slice(1);
/** The traces whose points are rows of the figure's table at numeric places. */
function linked(s) {
	if (!s.table) return [];
	return (s.figure.data ?? []).filter((t) => LINKED.has(t["type"]) && Array.isArray(t["customdata"]) && Array.isArray(t["x"]) && Array.isArray(t["y"]) && typeof t["x"][0] === "number" && typeof t["y"][0] === "number");
}
/** Can rows be chosen by an area in this figure? */
var brushable = (s) => !s.zoom && linked(s).length > 0;
/** The pairs of axes with points to choose, as suffixes: "" first. */
var pairsOf = (s) => [...new Set(linked(s).map(axesOf))].sort();
/** Keys of the points inside the areas of a figure's text; null when nothing is selected. */
function keysInside(s, text) {
	const areas = areasOf(text);
	if (!areas.length) return null;
	const out = /* @__PURE__ */ new Set();
	for (const trace of linked(s)) {
		const area = areas.find((a) => a.axes === axesOf(trace));
		if (!area) continue;
		const [xs, ys] = [trace["x"], trace["y"]];
		trace["customdata"].forEach((custom, i) => {
			const [x, y, key] = [
				xs[i],
				ys[i],
				pointKey(custom)
			];
			if (key !== null && typeof x === "number" && typeof y === "number" && within$2(x, area.x) && within$2(y, area.y)) out.add(key);
		});
	}
	return out;
}
/** ms between two requests for rows while a reader scrolls. */
var WAIT_MS$1 = 150;
var KEPT = 6;
var Paged = class {
	s;
	request;
	/** Counts answers: who reads it is drawn again when one comes. */
	news = y$1(0);
	orders = /* @__PURE__ */ new Map();
	now = {};
	shown;
	parts = /* @__PURE__ */ new Map();
	loaded = 0;
	last = 0;
	timer = 0;
	/** the first row that was on the screen: where an order of the same tree is requested first */
	from = 0;
	above = /* @__PURE__ */ new Map();
	constructor(s, request) {
		this.s = s;
		this.request = request;
		const pages = s.pages;
		s.data = Object.fromEntries(s.columns.map((c) => [c.name, new Array(pages.rows)]));
		this.shown = this.make({
			sort: null,
			needle: "",
			keep: [],
			ranges: [],
			picked: null,
			opened: s.tree ? {
				base: "d",
				ids: []
			} : null
		});
		this.take(this.shown, pages.page);
	}
	make(choice) {
		const order = {
			choice,
			places: [],
			twigs: /* @__PURE__ */ new Map(),
			count: 0,
			length: 0,
			of: 0,
			sums: {},
			passing: {},
			ready: false,
			error: null,
			failed: /* @__PURE__ */ new Map(),
			asked: /* @__PURE__ */ new Set(),
			found: /* @__PURE__ */ new Map(),
			paths: /* @__PURE__ */ new Map(),
			stop: new AbortController()
		};
		this.orders.set(nameOf(choice), order);
		while (this.orders.size > KEPT) {
			const oldest = [...this.orders].find(([, o]) => o !== this.shown && o !== order && !Object.values(this.now).includes(o));
			if (!oldest) break;
			oldest[1].stop.abort();
			this.orders.delete(oldest[0]);
		}
		return order;
	}
	/** The order of a choice as far as it is known; until its first page has come, the one that was shown before, with `waiting`. */
	orderOf(choice, slot) {
		this.news.value;
		const name = nameOf(choice);
		const order = this.orders.get(name) ?? this.make(choice);
		const before = this.now[slot];
		if (before !== order) {
			this.now[slot] = order;
			if (before && !before.ready && !Object.values(this.now).includes(before)) this.drop(before);
		}
		this.orders.delete(name);
		this.orders.set(name, order);
		if (order.ready) {
			if (slot === "rows") this.shown = order;
			return {
				order,
				waiting: null
			};
		}
		if (!order.error && !order.asked.size) this.load(order, this.firstOf(order), 100);
		return {
			order: this.shown,
			waiting: order
		};
	}
	/** Where an order is requested first: at its start, or where the reader is if only a branch was opened or closed. */
	firstOf(order) {
		const same = (c) => nameOf({
			...c,
			opened: null
		});
		return order.choice.opened && same(order.choice) === same(this.shown.choice) ? Math.floor(this.from / 100) * 100 : 0;
	}
	drop(order) {
		order.stop.abort();
		this.orders.delete(nameOf(order.choice));
	}
	/** Requests the rows from `from` to `to` that have not come, soon. */
	ensure(order, from, to) {
		window.clearTimeout(this.timer);
		this.from = from;
		const ask = () => {
			this.last = performance.now();
			for (let block = Math.floor(Math.max(0, from) / 100) * 100; block < Math.min(to, order.length); block += 100) {
				let first = block;
				const end = Math.min(block + 100, order.length);
				while (first < end && order.places[first] !== void 0) first++;
				if (first < end && !order.asked.has(first) && !order.failed.has(first)) this.load(order, first, end - first);
			}
		};
		const wait = this.last + WAIT_MS$1 - performance.now();
		if (wait <= 0) ask();
		else this.timer = window.setTimeout(ask, wait);
	}
	/** The place of a row in an order: -1 where it does not pass or has not come; then it is requested. */
	placeOf(order, key) {
		const known = order.found.get(key);
		if (known !== void 0) return known ?? -1;
		const column = this.s.data[this.s.key ?? ""];
		if (!column) return -1;
		let place = -1;
		order.places.forEach((index, at) => {
			if (place < 0 && String(column[index]) === key) place = at;
		});
		if (place >= 0) order.found.set(key, place);
		else if (!order.asked.has(-1)) this.load(order, -1, 100, key);
		return place;
	}
	/** Requests again what did not come. */
	retry(order) {
		const failed = order.ready ? [...order.failed.keys()] : [this.firstOf(order)];
		order.failed.clear();
		order.error = null;
		for (const first of failed) this.load(order, first, 100 - first % 100);
		this.news.value++;
	}
	load(order, offset, limit, key = "") {
		order.asked.add(offset);
		const { name, where, query } = this.request;
		const wanted = {
			...queryOf$1(order.choice),
			section: this.s.id,
			version: this.s.pages.version,
			limit: String(limit),
			...key ? { key } : { offset: String(offset) }
		};
		const done = () => {
			order.asked.delete(offset);
			this.news.value++;
		};
		getRows(name, where, query, wanted, bodyOf(order.choice), order.stop.signal).then((page) => {
			this.take(order, page);
			if (key) order.found.set(key, page.at ?? null);
			if (key && page.path?.length) order.paths.set(key, page.path);
			done();
			const [next, end] = [offset + page.length, Math.min(offset + limit, page.shown ?? page.count)];
			if (!key && page.length && next < end) this.load(order, next, end - next);
		}, (error) => {
			if (order.stop.signal.aborted) return;
			const why = error instanceof ApiError ? error : new ApiError({
				code: "error",
				message: String(error)
			}, 0);
			if (key) order.found.set(key, null);
			else if (order.ready) order.failed.set(offset, why);
			else order.error = why;
			done();
		});
	}
	take(order, page) {
		const { s } = this;
		(page.rows ?? []).forEach((row, i) => {
			if (i < page.length) order.places[page.offset + i] = row;
			if (page.branch) order.twigs.set(row, {
				depth: page.depth?.[i] ?? 0,
				branch: page.branch[i] > 0,
				open: page.branch[i] === 2
			});
			if (page.above) this.above.set(row, page.above[i] ?? null);
			for (const c of s.columns) s.data[c.name][row] = page.data?.[c.name]?.[i] ?? null;
		});
		s.marks = merged(s.marks, page.marks);
		s.cell_links = merged(s.cell_links, page.cell_links);
		s.row_links = {
			...s.row_links,
			...page.row_links
		};
		Object.assign(order, {
			count: page.count,
			length: page.shown ?? page.count,
			of: page.of,
			sums: page.sums ?? {},
			passing: page.passing ?? {},
			ready: true,
			error: null
		});
		order.places.length = order.length;
		this.loaded += page.length;
	}
	/** What the parent of a row says in the tree's column. */
	aboveOf = (row) => this.above.get(row) ?? null;
	/** The parts that tell the names of a column apart, among those that have come. */
	partsOf(column) {
		const known = this.parts.get(column);
		if (known?.loaded === this.loaded) return known.of;
		const names = [];
		this.s.data[column]?.forEach((v) => {
			if (typeof v === "string") names.push(v);
		});
		const of = distinctParts(names);
		this.parts.set(column, {
			loaded: this.loaded,
			of
		});
		return of;
	}
	/** Requests all rows of an order that have not come. */
	async loadAll(order) {
		const { name, where, query } = this.request;
		for (let at = 0; at < order.length;) {
			if (order.places[at] !== void 0) {
				at++;
				continue;
			}
			const page = await getRows(name, where, query, {
				...queryOf$1(order.choice),
				section: this.s.id,
				version: this.s.pages.version,
				limit: "1000",
				offset: String(at)
			}, bodyOf(order.choice), order.stop.signal);
			this.take(order, page);
			if (!page.length) return;
			this.news.value++;
		}
	}
	/** Where all rows of a choice can be saved from as CSV. */
	csvAddress(choice, columns) {
		const { name, where, query } = this.request;
		return rowsAddress(name, where, query, {
			...queryOf$1(choice),
			section: this.s.id,
			version: this.s.pages.version,
			format: "csv",
			columns: joinList(columns)
		});
	}
};
var nameOf = (c) => JSON.stringify([
	c.sort,
	c.needle,
	c.keep,
	c.ranges,
	c.picked && [...c.picked],
	c.opened
]);
function bodyOf(c) {
	return {
		...c.picked && { picked: [...c.picked] },
		...c.opened?.ids.length && { toggled: c.opened.ids }
	};
}
function queryOf$1(c) {
	const number = (value) => value === null ? "" : String(value);
	return {
		sort: c.sort ? (c.sort.descending ? "-" : "") + c.sort.column : "",
		find: c.needle,
		...c.opened && c.opened.base !== "d" && { open: c.opened.base },
		keep: c.keep.map(([column, values]) => `${column}:${joinList(values)}`),
		range: c.ranges.map(([column, r]) => `${column}:${number(r.above)}~${number(r.below)}`)
	};
}
function merged(before, more) {
	const out = { ...before };
	for (const [column, entries] of Object.entries(more ?? {})) out[column] = {
		...out[column],
		...entries
	};
	return out;
}
var every = /* @__PURE__ */ new WeakMap();
/** The rows that have come of a table in pages; null for one that is whole. */
var pagedOf = (s) => s.pages ? every.get(s) ?? null : null;
/** Prepares the tables in pages of a report. Called once per report, before it is drawn. */
function startPages(report, request) {
	for (const s of report.sections) if (s.kind === "table" && s.pages && request && !every.has(s)) every.set(s, new Paged(s, request));
}
// src/sections/linked.ts
var figures = /* @__PURE__ */ new WeakMap();
var seen = /* @__PURE__ */ new WeakSet();
var inside$2 = /* @__PURE__ */ new WeakMap();
/** Remembers which figures show the rows of which tables. Called before a section is drawn; cheap the second time. */
function linkReport(report) {
	if (seen.has(report)) return;
	seen.add(report);
	startPages(report, requestOf(report));
	for (const s of report.sections) if (s.kind === "table") figures.set(s, report.sections.filter((f) => f.kind === "figure" && f.table === s.id && brushable(f)));
}
/** Whether a chart shows the rows of this table as points: then the filters of the table are also its legend. */
var hasChart = (s) => (figures.get(s)?.length ?? 0) > 0;
/** Keys inside the areas selected in one figure; null when there is none. */
function insideOf(s) {
	const text = view.value.figures[s.id] ?? "";
	const known = inside$2.get(s);
	if (known?.text === text) return known.keys;
	const keys = keysInside(s, text);
	inside$2.set(s, {
		text,
		keys
	});
	return keys;
}
/** Keys that pass every figure's selected area; null when no area is selected. */
function pickedOf(s) {
	const sets = (figures.get(s) ?? []).map(insideOf).filter((keys) => keys !== null);
	if (sets.length < 2) return sets[0] ?? null;
	return new Set([...sets[0]].filter((key) => sets.every((keys) => keys.has(key))));
}
/** Whether several points of a chart belong to one row: then an area selects whole rows, not only the points inside. */
function sharesRows(s) {
	return (figures.get(s) ?? []).some((f) => (f.figure.data ?? []).some((t) => {
		const custom = t["customdata"];
		return Array.isArray(custom) && new Set(custom.map(pointKey)).size < custom.length;
	}));
}
function clearPicked(s) {
	for (const f of figures.get(s) ?? []) changeFigure(f.id, withAreas(view.peek().figures[f.id] ?? "", []), "quiet");
}
/** The other tables of a report whose rows have the same keys: what is selected in one is selected in them. */
var linkedTables = (table, report) => report.sections.filter((s) => s.kind === "table" && s !== table && !!table.key && s.key === table.key);
/** Selects a row in every table that has one of that key; "" clears the selection. The first is where it was chosen. */
function selectRow(tables, key) {
	const next = { ...view.peek().tables };
	for (const t of tables) if (key === "" || t === tables[0] || t.pages || t.data[t.key ?? ""]?.some((k) => String(k) === key)) next[t.id] = {
		...tableOf(t.id),
		row: key
	};
	change({ tables: next }, "quiet");
}
/** One step back: the selected row, else the level of an icicle, else the selected area. False when there is nothing to leave. */
function stepOut() {
	const { tables, figures: texts } = view.peek();
	if (Object.values(tables).some((t) => t.row)) {
		change({ tables: Object.fromEntries(Object.entries(tables).map(([id, t]) => [id, {
			...t,
			row: ""
		}])) }, "quiet");
		return true;
	}
	for (const part of [/^l:/, /^b\d*:/]) {
		const next = Object.fromEntries(Object.entries(texts).map(([id, text]) => [id, text.split(";").filter((p) => !part.test(p)).join(";")]));
		if (JSON.stringify(next) !== JSON.stringify(texts)) {
			change({ figures: next }, "quiet");
			return true;
		}
	}
	return false;
}
// node_modules/@tanstack/table-core/build/lib/index.mjs
/**
* table-core
*
* Copyright (c) TanStack
*
* This source code is licensed under the MIT license found in the
* LICENSE.md file in the root directory of this source tree.
*
* @license MIT
*/
function functionalUpdate(updater, input) {
	return typeof updater === "function" ? updater(input) : updater;
}
function makeStateUpdater(key, instance) {
	return (updater) => {
		instance.setState((old) => {
			return {
				...old,
				[key]: functionalUpdate(updater, old[key])
			};
		});
	};
}
function isFunction(d) {
	return d instanceof Function;
}
function isNumberArray(d) {
	return Array.isArray(d) && d.every((val) => typeof val === "number");
}
function flattenBy(arr, getChildren) {
	const flat = [];
	const recurse = (subArr) => {
		subArr.forEach((item) => {
			flat.push(item);
			const children = getChildren(item);
			if (children != null && children.length) recurse(children);
		});
	};
	recurse(arr);
	return flat;
}
function memo$1(getDeps, fn, opts) {
	let deps = [];
	let result;
	return (depArgs) => {
		let depTime;
		if (opts.key && opts.debug) depTime = Date.now();
		const newDeps = getDeps(depArgs);
		if (!(newDeps.length !== deps.length || newDeps.some((dep, index) => deps[index] !== dep))) return result;
		deps = newDeps;
		let resultTime;
		if (opts.key && opts.debug) resultTime = Date.now();
		result = fn(...newDeps);
		opts == null || opts.onChange == null || opts.onChange(result);
		if (opts.key && opts.debug) {
			if (opts != null && opts.debug()) {
				const depEndTime = Math.round((Date.now() - depTime) * 100) / 100;
				const resultEndTime = Math.round((Date.now() - resultTime) * 100) / 100;
				const resultFpsPercentage = resultEndTime / 16;
				const pad = (str, num) => {
					str = String(str);
					while (str.length < num) str = " " + str;
					return str;
				};
				console.info(`%c⏱ ${pad(resultEndTime, 5)} /${pad(depEndTime, 5)} ms`, `
            font-size: .6rem;
            font-weight: bold;
            color: hsl(${Math.max(0, Math.min(120 - 120 * resultFpsPercentage, 120))}deg 100% 31%);`, opts == null ? void 0 : opts.key);
			}
		}
		return result;
	};
}
function getMemoOptions(tableOptions, debugLevel, key, onChange) {
	return {
		debug: () => {
			var _tableOptions$debugAl;
			return (_tableOptions$debugAl = tableOptions == null ? void 0 : tableOptions.debugAll) != null ? _tableOptions$debugAl : tableOptions[debugLevel];
		},
		key: false,
		onChange
	};
}
function createCell(table, row, column, columnId) {
	const getRenderValue = () => {
		var _cell$getValue;
		return (_cell$getValue = cell.getValue()) != null ? _cell$getValue : table.options.renderFallbackValue;
	};
	const cell = {
		id: `${row.id}_${column.id}`,
		row,
		column,
		getValue: () => row.getValue(columnId),
		renderValue: getRenderValue,
		getContext: memo$1(() => [
			table,
			column,
			row,
			cell
		], (table, column, row, cell) => ({
			table,
			column,
			row,
			cell,
			getValue: cell.getValue,
			renderValue: cell.renderValue
		}), getMemoOptions(table.options, "debugCells", "cell.getContext"))
	};
	table._features.forEach((feature) => {
		feature.createCell == null || feature.createCell(cell, column, row, table);
	}, {});
	return cell;
}
function createColumn(table, columnDef, depth, parent) {
	var _ref, _resolvedColumnDef$id;
	const resolvedColumnDef = {
		...table._getDefaultColumnDef(),
		...columnDef
	};
	const accessorKey = resolvedColumnDef.accessorKey;
	let id = (_ref = (_resolvedColumnDef$id = resolvedColumnDef.id) != null ? _resolvedColumnDef$id : accessorKey ? typeof String.prototype.replaceAll === "function" ? accessorKey.replaceAll(".", "_") : accessorKey.replace(/\./g, "_") : void 0) != null ? _ref : typeof resolvedColumnDef.header === "string" ? resolvedColumnDef.header : void 0;
	let accessorFn;
	if (resolvedColumnDef.accessorFn) accessorFn = resolvedColumnDef.accessorFn;
	else if (accessorKey) {
		if (accessorKey.includes(".")) accessorFn = (originalRow) => {
			let result = originalRow;
			for (const key of accessorKey.split(".")) {
				var _result;
				result = (_result = result) == null ? void 0 : _result[key];
			}
			return result;
		};
		else accessorFn = (originalRow) => originalRow[resolvedColumnDef.accessorKey];
	}
	if (!id) throw new Error();
	let column = {
		id: `${String(id)}`,
		accessorFn,
		parent,
		depth,
		columnDef: resolvedColumnDef,
		columns: [],
		getFlatColumns: memo$1(() => [true], () => {
			var _column$columns;
			return [column, ...(_column$columns = column.columns) == null ? void 0 : _column$columns.flatMap((d) => d.getFlatColumns())];
		}, getMemoOptions(table.options, "debugColumns", "column.getFlatColumns")),
		getLeafColumns: memo$1(() => [table._getOrderColumnsFn()], (orderColumns) => {
			var _column$columns2;
			if ((_column$columns2 = column.columns) != null && _column$columns2.length) return orderColumns(column.columns.flatMap((column) => column.getLeafColumns()));
			return [column];
		}, getMemoOptions(table.options, "debugColumns", "column.getLeafColumns"))
	};
	for (const feature of table._features) feature.createColumn == null || feature.createColumn(column, table);
	return column;
}
var debug = "debugHeaders";
function createHeader(table, column, options) {
	var _options$id;
	let header = {
		id: (_options$id = options.id) != null ? _options$id : column.id,
		column,
		index: options.index,
		isPlaceholder: !!options.isPlaceholder,
		placeholderId: options.placeholderId,
		depth: options.depth,
		subHeaders: [],
		colSpan: 0,
		rowSpan: 0,
		headerGroup: null,
		getLeafHeaders: () => {
			const leafHeaders = [];
			const recurseHeader = (h) => {
				if (h.subHeaders && h.subHeaders.length) h.subHeaders.map(recurseHeader);
				leafHeaders.push(h);
			};
			recurseHeader(header);
			return leafHeaders;
		},
		getContext: () => ({
			table,
			header,
			column
		})
	};
	table._features.forEach((feature) => {
		feature.createHeader == null || feature.createHeader(header, table);
	});
	return header;
}
var Headers = { createTable: (table) => {
	table.getHeaderGroups = memo$1(() => [
		table.getAllColumns(),
		table.getVisibleLeafColumns(),
		table.getState().columnPinning.left,
		table.getState().columnPinning.right
	], (allColumns, leafColumns, left, right) => {
		var _left$map$filter, _right$map$filter;
		const leftColumns = (_left$map$filter = left == null ? void 0 : left.map((columnId) => leafColumns.find((d) => d.id === columnId)).filter(Boolean)) != null ? _left$map$filter : [];
		const rightColumns = (_right$map$filter = right == null ? void 0 : right.map((columnId) => leafColumns.find((d) => d.id === columnId)).filter(Boolean)) != null ? _right$map$filter : [];
		const centerColumns = leafColumns.filter((column) => !(left != null && left.includes(column.id)) && !(right != null && right.includes(column.id)));
		return buildHeaderGroups(allColumns, [
			...leftColumns,
			...centerColumns,
			...rightColumns
		], table);
	}, getMemoOptions(table.options, debug, "getHeaderGroups"));
	table.getCenterHeaderGroups = memo$1(() => [
		table.getAllColumns(),
		table.getVisibleLeafColumns(),
		table.getState().columnPinning.left,
		table.getState().columnPinning.right
	], (allColumns, leafColumns, left, right) => {
		leafColumns = leafColumns.filter((column) => !(left != null && left.includes(column.id)) && !(right != null && right.includes(column.id)));
		return buildHeaderGroups(allColumns, leafColumns, table, "center");
	}, getMemoOptions(table.options, debug, "getCenterHeaderGroups"));
	table.getLeftHeaderGroups = memo$1(() => [
		table.getAllColumns(),
		table.getVisibleLeafColumns(),
		table.getState().columnPinning.left
	], (allColumns, leafColumns, left) => {
		var _left$map$filter2;
		return buildHeaderGroups(allColumns, (_left$map$filter2 = left == null ? void 0 : left.map((columnId) => leafColumns.find((d) => d.id === columnId)).filter(Boolean)) != null ? _left$map$filter2 : [], table, "left");
	}, getMemoOptions(table.options, debug, "getLeftHeaderGroups"));
	table.getRightHeaderGroups = memo$1(() => [
		table.getAllColumns(),
		table.getVisibleLeafColumns(),
		table.getState().columnPinning.right
	], (allColumns, leafColumns, right) => {
		var _right$map$filter2;
		return buildHeaderGroups(allColumns, (_right$map$filter2 = right == null ? void 0 : right.map((columnId) => leafColumns.find((d) => d.id === columnId)).filter(Boolean)) != null ? _right$map$filter2 : [], table, "right");
	}, getMemoOptions(table.options, debug, "getRightHeaderGroups"));
	table.getFooterGroups = memo$1(() => [table.getHeaderGroups()], (headerGroups) => {
		return [...headerGroups].reverse();
	}, getMemoOptions(table.options, debug, "getFooterGroups"));
	table.getLeftFooterGroups = memo$1(() => [table.getLeftHeaderGroups()], (headerGroups) => {
		return [...headerGroups].reverse();
	}, getMemoOptions(table.options, debug, "getLeftFooterGroups"));
	table.getCenterFooterGroups = memo$1(() => [table.getCenterHeaderGroups()], (headerGroups) => {
		return [...headerGroups].reverse();
	}, getMemoOptions(table.options, debug, "getCenterFooterGroups"));
	table.getRightFooterGroups = memo$1(() => [table.getRightHeaderGroups()], (headerGroups) => {
		return [...headerGroups].reverse();
	}, getMemoOptions(table.options, debug, "getRightFooterGroups"));
	table.getFlatHeaders = memo$1(() => [table.getHeaderGroups()], (headerGroups) => {
		return headerGroups.map((headerGroup) => {
			return headerGroup.headers;
		}).flat();
	}, getMemoOptions(table.options, debug, "getFlatHeaders"));
	table.getLeftFlatHeaders = memo$1(() => [table.getLeftHeaderGroups()], (left) => {
		return left.map((headerGroup) => {
			return headerGroup.headers;
		}).flat();
	}, getMemoOptions(table.options, debug, "getLeftFlatHeaders"));
	table.getCenterFlatHeaders = memo$1(() => [table.getCenterHeaderGroups()], (left) => {
		return left.map((headerGroup) => {
			return headerGroup.headers;
		}).flat();
	}, getMemoOptions(table.options, debug, "getCenterFlatHeaders"));
	table.getRightFlatHeaders = memo$1(() => [table.getRightHeaderGroups()], (left) => {
		return left.map((headerGroup) => {
			return headerGroup.headers;
		}).flat();
	}, getMemoOptions(table.options, debug, "getRightFlatHeaders"));
	table.getCenterLeafHeaders = memo$1(() => [table.getCenterFlatHeaders()], (flatHeaders) => {
		return flatHeaders.filter((header) => {
			var _header$subHeaders;
			return !((_header$subHeaders = header.subHeaders) != null && _header$subHeaders.length);
		});
	}, getMemoOptions(table.options, debug, "getCenterLeafHeaders"));
	table.getLeftLeafHeaders = memo$1(() => [table.getLeftFlatHeaders()], (flatHeaders) => {
		return flatHeaders.filter((header) => {
			var _header$subHeaders2;
			return !((_header$subHeaders2 = header.subHeaders) != null && _header$subHeaders2.length);
		});
	}, getMemoOptions(table.options, debug, "getLeftLeafHeaders"));
	table.getRightLeafHeaders = memo$1(() => [table.getRightFlatHeaders()], (flatHeaders) => {
		return flatHeaders.filter((header) => {
			var _header$subHeaders3;
			return !((_header$subHeaders3 = header.subHeaders) != null && _header$subHeaders3.length);
		});
	}, getMemoOptions(table.options, debug, "getRightLeafHeaders"));
	table.getLeafHeaders = memo$1(() => [
		table.getLeftHeaderGroups(),
		table.getCenterHeaderGroups(),
		table.getRightHeaderGroups()
	], (left, center, right) => {
		var _left$0$headers, _left$, _center$0$headers, _center$, _right$0$headers, _right$;
		return [
			...(_left$0$headers = (_left$ = left[0]) == null ? void 0 : _left$.headers) != null ? _left$0$headers : [],
			...(_center$0$headers = (_center$ = center[0]) == null ? void 0 : _center$.headers) != null ? _center$0$headers : [],
			...(_right$0$headers = (_right$ = right[0]) == null ? void 0 : _right$.headers) != null ? _right$0$headers : []
		].map((header) => {
			return header.getLeafHeaders();
		}).flat();
	}, getMemoOptions(table.options, debug, "getLeafHeaders"));
} };
function buildHeaderGroups(allColumns, columnsToGroup, table, headerFamily) {
	var _headerGroups$0$heade, _headerGroups$;
	let maxDepth = 0;
	const findMaxDepth = function(columns, depth) {
		if (depth === void 0) depth = 1;
		maxDepth = Math.max(maxDepth, depth);
		columns.filter((column) => column.getIsVisible()).forEach((column) => {
			var _column$columns;
			if ((_column$columns = column.columns) != null && _column$columns.length) findMaxDepth(column.columns, depth + 1);
		}, 0);
	};
	findMaxDepth(allColumns);
	let headerGroups = [];
	const createHeaderGroup = (headersToGroup, depth) => {
		const headerGroup = {
			depth,
			id: [headerFamily, `${depth}`].filter(Boolean).join("_"),
			headers: []
		};
		const pendingParentHeaders = [];
		headersToGroup.forEach((headerToGroup) => {
			const latestPendingParentHeader = [...pendingParentHeaders].reverse()[0];
			const isLeafHeader = headerToGroup.column.depth === headerGroup.depth;
			let column;
			let isPlaceholder = false;
			if (isLeafHeader && headerToGroup.column.parent) column = headerToGroup.column.parent;
			else {
				column = headerToGroup.column;
				isPlaceholder = true;
			}
			if (latestPendingParentHeader && (latestPendingParentHeader == null ? void 0 : latestPendingParentHeader.column) === column) latestPendingParentHeader.subHeaders.push(headerToGroup);
			else {
				const header = createHeader(table, column, {
					id: [
						headerFamily,
						depth,
						column.id,
						headerToGroup == null ? void 0 : headerToGroup.id
					].filter(Boolean).join("_"),
					isPlaceholder,
					placeholderId: isPlaceholder ? `${pendingParentHeaders.filter((d) => d.column === column).length}` : void 0,
					depth,
					index: pendingParentHeaders.length
				});
				header.subHeaders.push(headerToGroup);
				pendingParentHeaders.push(header);
			}
			headerGroup.headers.push(headerToGroup);
			headerToGroup.headerGroup = headerGroup;
		});
		headerGroups.push(headerGroup);
		if (depth > 0) createHeaderGroup(pendingParentHeaders, depth - 1);
	};
	createHeaderGroup(columnsToGroup.map((column, index) => createHeader(table, column, {
		depth: maxDepth,
		index
	})), maxDepth - 1);
	headerGroups.reverse();
	const recurseHeadersForSpans = (headers) => {
		return headers.filter((header) => header.column.getIsVisible()).map((header) => {
			let colSpan = 0;
			let rowSpan = 0;
			let childRowSpans = [0];
			if (header.subHeaders && header.subHeaders.length) {
				childRowSpans = [];
				recurseHeadersForSpans(header.subHeaders).forEach((_ref) => {
					let { colSpan: childColSpan, rowSpan: childRowSpan } = _ref;
					colSpan += childColSpan;
					childRowSpans.push(childRowSpan);
				});
			} else colSpan = 1;
			const minChildRowSpan = Math.min(...childRowSpans);
			rowSpan = rowSpan + minChildRowSpan;
			header.colSpan = colSpan;
			header.rowSpan = rowSpan;
			return {
				colSpan,
				rowSpan
			};
		});
	};
	recurseHeadersForSpans((_headerGroups$0$heade = (_headerGroups$ = headerGroups[0]) == null ? void 0 : _headerGroups$.headers) != null ? _headerGroups$0$heade : []);
	return headerGroups;
}
var createRow = (table, id, original, rowIndex, depth, subRows, parentId) => {
	let row = {
		id,
		index: rowIndex,
		original,
		depth,
		parentId,
		_valuesCache: {},
		_uniqueValuesCache: {},
		getValue: (columnId) => {
			if (row._valuesCache.hasOwnProperty(columnId)) return row._valuesCache[columnId];
			const column = table.getColumn(columnId);
			if (!(column != null && column.accessorFn)) return;
			row._valuesCache[columnId] = column.accessorFn(row.original, rowIndex);
			return row._valuesCache[columnId];
		},
		getUniqueValues: (columnId) => {
			if (row._uniqueValuesCache.hasOwnProperty(columnId)) return row._uniqueValuesCache[columnId];
			const column = table.getColumn(columnId);
			if (!(column != null && column.accessorFn)) return;
			if (!column.columnDef.getUniqueValues) {
				row._uniqueValuesCache[columnId] = [row.getValue(columnId)];
				return row._uniqueValuesCache[columnId];
			}
			row._uniqueValuesCache[columnId] = column.columnDef.getUniqueValues(row.original, rowIndex);
			return row._uniqueValuesCache[columnId];
		},
		renderValue: (columnId) => {
			var _row$getValue;
			return (_row$getValue = row.getValue(columnId)) != null ? _row$getValue : table.options.renderFallbackValue;
		},
		subRows: subRows != null ? subRows : [],
		getLeafRows: () => flattenBy(row.subRows, (d) => d.subRows),
		getParentRow: () => row.parentId ? table.getRow(row.parentId, true) : void 0,
		getParentRows: () => {
			let parentRows = [];
			let currentRow = row;
			while (true) {
				const parentRow = currentRow.getParentRow();
				if (!parentRow) break;
				parentRows.push(parentRow);
				currentRow = parentRow;
			}
			return parentRows.reverse();
		},
		getAllCells: memo$1(() => [table.getAllLeafColumns()], (leafColumns) => {
			return leafColumns.map((column) => {
				return createCell(table, row, column, column.id);
			});
		}, getMemoOptions(table.options, "debugRows", "getAllCells")),
		_getAllCellsByColumnId: memo$1(() => [row.getAllCells()], (allCells) => {
			return allCells.reduce((acc, cell) => {
				acc[cell.column.id] = cell;
				return acc;
			}, {});
		}, getMemoOptions(table.options, "debugRows", "getAllCellsByColumnId"))
	};
	for (let i = 0; i < table._features.length; i++) {
		const feature = table._features[i];
		feature == null || feature.createRow == null || feature.createRow(row, table);
	}
	return row;
};
var ColumnFaceting = { createColumn: (column, table) => {
	column._getFacetedRowModel = table.options.getFacetedRowModel && table.options.getFacetedRowModel(table, column.id);
	column.getFacetedRowModel = () => {
		if (!column._getFacetedRowModel) return table.getPreFilteredRowModel();
		return column._getFacetedRowModel();
	};
	column._getFacetedUniqueValues = table.options.getFacetedUniqueValues && table.options.getFacetedUniqueValues(table, column.id);
	column.getFacetedUniqueValues = () => {
		if (!column._getFacetedUniqueValues) return /* @__PURE__ */ new Map();
		return column._getFacetedUniqueValues();
	};
	column._getFacetedMinMaxValues = table.options.getFacetedMinMaxValues && table.options.getFacetedMinMaxValues(table, column.id);
	column.getFacetedMinMaxValues = () => {
		if (!column._getFacetedMinMaxValues) return;
		return column._getFacetedMinMaxValues();
	};
} };
var includesString = (row, columnId, filterValue) => {
	var _filterValue$toString, _row$getValue;
	const search = filterValue == null || (_filterValue$toString = filterValue.toString()) == null ? void 0 : _filterValue$toString.toLowerCase();
	return Boolean((_row$getValue = row.getValue(columnId)) == null || (_row$getValue = _row$getValue.toString()) == null || (_row$getValue = _row$getValue.toLowerCase()) == null ? void 0 : _row$getValue.includes(search));
};
includesString.autoRemove = (val) => testFalsey(val);
var includesStringSensitive = (row, columnId, filterValue) => {
	var _row$getValue2;
	return Boolean((_row$getValue2 = row.getValue(columnId)) == null || (_row$getValue2 = _row$getValue2.toString()) == null ? void 0 : _row$getValue2.includes(filterValue));
};
includesStringSensitive.autoRemove = (val) => testFalsey(val);
var equalsString = (row, columnId, filterValue) => {
	var _row$getValue3;
	return ((_row$getValue3 = row.getValue(columnId)) == null || (_row$getValue3 = _row$getValue3.toString()) == null ? void 0 : _row$getValue3.toLowerCase()) === (filterValue == null ? void 0 : filterValue.toLowerCase());
};
equalsString.autoRemove = (val) => testFalsey(val);
var arrIncludes = (row, columnId, filterValue) => {
	var _row$getValue4;
	return (_row$getValue4 = row.getValue(columnId)) == null ? void 0 : _row$getValue4.includes(filterValue);
};
arrIncludes.autoRemove = (val) => testFalsey(val);
var arrIncludesAll = (row, columnId, filterValue) => {
	return !filterValue.some((val) => {
		var _row$getValue5;
		return !((_row$getValue5 = row.getValue(columnId)) != null && _row$getValue5.includes(val));
	});
};
arrIncludesAll.autoRemove = (val) => testFalsey(val) || !(val != null && val.length);
var arrIncludesSome = (row, columnId, filterValue) => {
	return filterValue.some((val) => {
		var _row$getValue6;
		return (_row$getValue6 = row.getValue(columnId)) == null ? void 0 : _row$getValue6.includes(val);
	});
};
arrIncludesSome.autoRemove = (val) => testFalsey(val) || !(val != null && val.length);
var equals = (row, columnId, filterValue) => {
	return row.getValue(columnId) === filterValue;
};
equals.autoRemove = (val) => testFalsey(val);
var weakEquals = (row, columnId, filterValue) => {
	return row.getValue(columnId) == filterValue;
};
weakEquals.autoRemove = (val) => testFalsey(val);
var inNumberRange = (row, columnId, filterValue) => {
	let [min, max] = filterValue;
	const rowValue = row.getValue(columnId);
	return rowValue >= min && rowValue <= max;
};
inNumberRange.resolveFilterValue = (val) => {
	let [unsafeMin, unsafeMax] = val;
	let parsedMin = typeof unsafeMin !== "number" ? parseFloat(unsafeMin) : unsafeMin;
	let parsedMax = typeof unsafeMax !== "number" ? parseFloat(unsafeMax) : unsafeMax;
	let min = unsafeMin === null || Number.isNaN(parsedMin) ? -Infinity : parsedMin;
	let max = unsafeMax === null || Number.isNaN(parsedMax) ? Infinity : parsedMax;
	if (min > max) {
		const temp = min;
		min = max;
		max = temp;
	}
	return [min, max];
};
inNumberRange.autoRemove = (val) => testFalsey(val) || testFalsey(val[0]) && testFalsey(val[1]);
var filterFns = {
	includesString,
	includesStringSensitive,
	equalsString,
	arrIncludes,
	arrIncludesAll,
	arrIncludesSome,
	equals,
	weakEquals,
	inNumberRange
};
function testFalsey(val) {
	return val === void 0 || val === null || val === "";
}
var ColumnFiltering = {
	getDefaultColumnDef: () => {
		return { filterFn: "auto" };
	},
	getInitialState: (state) => {
		return {
			columnFilters: [],
			...state
		};
	},
	getDefaultOptions: (table) => {
		return {
			onColumnFiltersChange: makeStateUpdater("columnFilters", table),
			filterFromLeafRows: false,
			maxLeafRowFilterDepth: 100
		};
	},
	createColumn: (column, table) => {
		column.getAutoFilterFn = () => {
			const firstRow = table.getCoreRowModel().flatRows[0];
			const value = firstRow == null ? void 0 : firstRow.getValue(column.id);
			if (typeof value === "string") return filterFns.includesString;
			if (typeof value === "number") return filterFns.inNumberRange;
			if (typeof value === "boolean") return filterFns.equals;
			if (value !== null && typeof value === "object") return filterFns.equals;
			if (Array.isArray(value)) return filterFns.arrIncludes;
			return filterFns.weakEquals;
		};
		column.getFilterFn = () => {
			var _table$options$filter, _table$options$filter2;
			return isFunction(column.columnDef.filterFn) ? column.columnDef.filterFn : column.columnDef.filterFn === "auto" ? column.getAutoFilterFn() : (_table$options$filter = (_table$options$filter2 = table.options.filterFns) == null ? void 0 : _table$options$filter2[column.columnDef.filterFn]) != null ? _table$options$filter : filterFns[column.columnDef.filterFn];
		};
		column.getCanFilter = () => {
			var _column$columnDef$ena, _table$options$enable, _table$options$enable2;
			return ((_column$columnDef$ena = column.columnDef.enableColumnFilter) != null ? _column$columnDef$ena : true) && ((_table$options$enable = table.options.enableColumnFilters) != null ? _table$options$enable : true) && ((_table$options$enable2 = table.options.enableFilters) != null ? _table$options$enable2 : true) && !!column.accessorFn;
		};
		column.getIsFiltered = () => column.getFilterIndex() > -1;
		column.getFilterValue = () => {
			var _table$getState$colum;
			return (_table$getState$colum = table.getState().columnFilters) == null || (_table$getState$colum = _table$getState$colum.find((d) => d.id === column.id)) == null ? void 0 : _table$getState$colum.value;
		};
		column.getFilterIndex = () => {
			var _table$getState$colum2, _table$getState$colum3;
			return (_table$getState$colum2 = (_table$getState$colum3 = table.getState().columnFilters) == null ? void 0 : _table$getState$colum3.findIndex((d) => d.id === column.id)) != null ? _table$getState$colum2 : -1;
		};
		column.setFilterValue = (value) => {
			table.setColumnFilters((old) => {
				const filterFn = column.getFilterFn();
				const previousFilter = old == null ? void 0 : old.find((d) => d.id === column.id);
				const newFilter = functionalUpdate(value, previousFilter ? previousFilter.value : void 0);
				if (shouldAutoRemoveFilter(filterFn, newFilter, column)) {
					var _old$filter;
					return (_old$filter = old == null ? void 0 : old.filter((d) => d.id !== column.id)) != null ? _old$filter : [];
				}
				const newFilterObj = {
					id: column.id,
					value: newFilter
				};
				if (previousFilter) {
					var _old$map;
					return (_old$map = old == null ? void 0 : old.map((d) => {
						if (d.id === column.id) return newFilterObj;
						return d;
					})) != null ? _old$map : [];
				}
				if (old != null && old.length) return [...old, newFilterObj];
				return [newFilterObj];
			});
		};
	},
	createRow: (row, _table) => {
		row.columnFilters = {};
		row.columnFiltersMeta = {};
	},
	createTable: (table) => {
		table.setColumnFilters = (updater) => {
			const leafColumns = table.getAllLeafColumns();
			const updateFn = (old) => {
				var _functionalUpdate;
				return (_functionalUpdate = functionalUpdate(updater, old)) == null ? void 0 : _functionalUpdate.filter((filter) => {
					const column = leafColumns.find((d) => d.id === filter.id);
					if (column) {
						if (shouldAutoRemoveFilter(column.getFilterFn(), filter.value, column)) return false;
					}
					return true;
				});
			};
			table.options.onColumnFiltersChange == null || table.options.onColumnFiltersChange(updateFn);
		};
		table.resetColumnFilters = (defaultState) => {
			var _table$initialState$c, _table$initialState;
			table.setColumnFilters(defaultState ? [] : (_table$initialState$c = (_table$initialState = table.initialState) == null ? void 0 : _table$initialState.columnFilters) != null ? _table$initialState$c : []);
		};
		table.getPreFilteredRowModel = () => table.getCoreRowModel();
		table.getFilteredRowModel = () => {
			if (!table._getFilteredRowModel && table.options.getFilteredRowModel) table._getFilteredRowModel = table.options.getFilteredRowModel(table);
			if (table.options.manualFiltering || !table._getFilteredRowModel) return table.getPreFilteredRowModel();
			return table._getFilteredRowModel();
		};
	}
};
function shouldAutoRemoveFilter(filterFn, value, column) {
	return (filterFn && filterFn.autoRemove ? filterFn.autoRemove(value, column) : false) || typeof value === "undefined" || typeof value === "string" && !value;
}
var sum = (columnId, _leafRows, childRows) => {
	return childRows.reduce((sum, next) => {
		const nextValue = next.getValue(columnId);
		return sum + (typeof nextValue === "number" ? nextValue : 0);
	}, 0);
};
var min = (columnId, _leafRows, childRows) => {
	let min;
	childRows.forEach((row) => {
		const value = row.getValue(columnId);
		if (value != null && (min > value || min === void 0 && value >= value)) min = value;
	});
	return min;
};
var max = (columnId, _leafRows, childRows) => {
	let max;
	childRows.forEach((row) => {
		const value = row.getValue(columnId);
		if (value != null && (max < value || max === void 0 && value >= value)) max = value;
	});
	return max;
};
var extent = (columnId, _leafRows, childRows) => {
	let min;
	let max;
	childRows.forEach((row) => {
		const value = row.getValue(columnId);
		if (value != null) {
			if (min === void 0) {
				if (value >= value) min = max = value;
			} else {
				if (min > value) min = value;
				if (max < value) max = value;
			}
		}
	});
	return [min, max];
};
var mean = (columnId, leafRows) => {
	let count = 0;
	let sum = 0;
	leafRows.forEach((row) => {
		let value = row.getValue(columnId);
		if (value != null && (value = +value) >= value) ++count, sum += value;
	});
	if (count) return sum / count;
};
var median = (columnId, leafRows) => {
	if (!leafRows.length) return;
	const values = leafRows.map((row) => row.getValue(columnId));
	if (!isNumberArray(values)) return;
	if (values.length === 1) return values[0];
	const mid = Math.floor(values.length / 2);
	const nums = values.sort((a, b) => a - b);
	return values.length % 2 !== 0 ? nums[mid] : (nums[mid - 1] + nums[mid]) / 2;
};
var unique = (columnId, leafRows) => {
	return Array.from(new Set(leafRows.map((d) => d.getValue(columnId))).values());
};
var uniqueCount = (columnId, leafRows) => {
	return new Set(leafRows.map((d) => d.getValue(columnId))).size;
};
var count$1 = (_columnId, leafRows) => {
	return leafRows.length;
};
var aggregationFns = {
	sum,
	min,
	max,
	extent,
	mean,
	median,
	unique,
	uniqueCount,
	count: count$1
};
var ColumnGrouping = {
	getDefaultColumnDef: () => {
		return {
			aggregatedCell: (props) => {
				var _toString, _props$getValue;
				return (_toString = (_props$getValue = props.getValue()) == null || _props$getValue.toString == null ? void 0 : _props$getValue.toString()) != null ? _toString : null;
			},
			aggregationFn: "auto"
		};
	},
	getInitialState: (state) => {
		return {
			grouping: [],
			...state
		};
	},
	getDefaultOptions: (table) => {
		return {
			onGroupingChange: makeStateUpdater("grouping", table),
			groupedColumnMode: "reorder"
		};
	},
	createColumn: (column, table) => {
		column.toggleGrouping = () => {
			table.setGrouping((old) => {
				if (old != null && old.includes(column.id)) return old.filter((d) => d !== column.id);
				return [...old != null ? old : [], column.id];
			});
		};
		column.getCanGroup = () => {
			var _column$columnDef$ena, _table$options$enable;
			return ((_column$columnDef$ena = column.columnDef.enableGrouping) != null ? _column$columnDef$ena : true) && ((_table$options$enable = table.options.enableGrouping) != null ? _table$options$enable : true) && (!!column.accessorFn || !!column.columnDef.getGroupingValue);
		};
		column.getIsGrouped = () => {
			var _table$getState$group;
			return (_table$getState$group = table.getState().grouping) == null ? void 0 : _table$getState$group.includes(column.id);
		};
		column.getGroupedIndex = () => {
			var _table$getState$group2;
			return (_table$getState$group2 = table.getState().grouping) == null ? void 0 : _table$getState$group2.indexOf(column.id);
		};
		column.getToggleGroupingHandler = () => {
			const canGroup = column.getCanGroup();
			return () => {
				if (!canGroup) return;
				column.toggleGrouping();
			};
		};
		column.getAutoAggregationFn = () => {
			const firstRow = table.getCoreRowModel().flatRows[0];
			const value = firstRow == null ? void 0 : firstRow.getValue(column.id);
			if (typeof value === "number") return aggregationFns.sum;
			if (Object.prototype.toString.call(value) === "[object Date]") return aggregationFns.extent;
		};
		column.getAggregationFn = () => {
			var _table$options$aggreg, _table$options$aggreg2;
			if (!column) throw new Error();
			return isFunction(column.columnDef.aggregationFn) ? column.columnDef.aggregationFn : column.columnDef.aggregationFn === "auto" ? column.getAutoAggregationFn() : (_table$options$aggreg = (_table$options$aggreg2 = table.options.aggregationFns) == null ? void 0 : _table$options$aggreg2[column.columnDef.aggregationFn]) != null ? _table$options$aggreg : aggregationFns[column.columnDef.aggregationFn];
		};
	},
	createTable: (table) => {
		table.setGrouping = (updater) => table.options.onGroupingChange == null ? void 0 : table.options.onGroupingChange(updater);
		table.resetGrouping = (defaultState) => {
			var _table$initialState$g, _table$initialState;
			table.setGrouping(defaultState ? [] : (_table$initialState$g = (_table$initialState = table.initialState) == null ? void 0 : _table$initialState.grouping) != null ? _table$initialState$g : []);
		};
		table.getPreGroupedRowModel = () => table.getFilteredRowModel();
		table.getGroupedRowModel = () => {
			if (!table._getGroupedRowModel && table.options.getGroupedRowModel) table._getGroupedRowModel = table.options.getGroupedRowModel(table);
			if (table.options.manualGrouping || !table._getGroupedRowModel) return table.getPreGroupedRowModel();
			return table._getGroupedRowModel();
		};
	},
	createRow: (row, table) => {
		row.getIsGrouped = () => !!row.groupingColumnId;
		row.getGroupingValue = (columnId) => {
			if (row._groupingValuesCache.hasOwnProperty(columnId)) return row._groupingValuesCache[columnId];
			const column = table.getColumn(columnId);
			if (!(column != null && column.columnDef.getGroupingValue)) return row.getValue(columnId);
			row._groupingValuesCache[columnId] = column.columnDef.getGroupingValue(row.original);
			return row._groupingValuesCache[columnId];
		};
		row._groupingValuesCache = {};
	},
	createCell: (cell, column, row, table) => {
		cell.getIsGrouped = () => column.getIsGrouped() && column.id === row.groupingColumnId;
		cell.getIsPlaceholder = () => !cell.getIsGrouped() && column.getIsGrouped();
		cell.getIsAggregated = () => {
			var _row$subRows;
			return !cell.getIsGrouped() && !cell.getIsPlaceholder() && !!((_row$subRows = row.subRows) != null && _row$subRows.length);
		};
	}
};
function orderColumns(leafColumns, grouping, groupedColumnMode) {
	if (!(grouping != null && grouping.length) || !groupedColumnMode) return leafColumns;
	const nonGroupingColumns = leafColumns.filter((col) => !grouping.includes(col.id));
	if (groupedColumnMode === "remove") return nonGroupingColumns;
	return [...grouping.map((g) => leafColumns.find((col) => col.id === g)).filter(Boolean), ...nonGroupingColumns];
}
var ColumnOrdering = {
	getInitialState: (state) => {
		return {
			columnOrder: [],
			...state
		};
	},
	getDefaultOptions: (table) => {
		return { onColumnOrderChange: makeStateUpdater("columnOrder", table) };
	},
	createColumn: (column, table) => {
		column.getIndex = memo$1((position) => [_getVisibleLeafColumns(table, position)], (columns) => columns.findIndex((d) => d.id === column.id), getMemoOptions(table.options, "debugColumns", "getIndex"));
		column.getIsFirstColumn = (position) => {
			var _columns$;
			return ((_columns$ = _getVisibleLeafColumns(table, position)[0]) == null ? void 0 : _columns$.id) === column.id;
		};
		column.getIsLastColumn = (position) => {
			var _columns;
			const columns = _getVisibleLeafColumns(table, position);
			return ((_columns = columns[columns.length - 1]) == null ? void 0 : _columns.id) === column.id;
		};
	},
	createTable: (table) => {
		table.setColumnOrder = (updater) => table.options.onColumnOrderChange == null ? void 0 : table.options.onColumnOrderChange(updater);
		table.resetColumnOrder = (defaultState) => {
			var _table$initialState$c;
			table.setColumnOrder(defaultState ? [] : (_table$initialState$c = table.initialState.columnOrder) != null ? _table$initialState$c : []);
		};
		table._getOrderColumnsFn = memo$1(() => [
			table.getState().columnOrder,
			table.getState().grouping,
			table.options.groupedColumnMode
		], (columnOrder, grouping, groupedColumnMode) => (columns) => {
			let orderedColumns = [];
			if (!(columnOrder != null && columnOrder.length)) orderedColumns = columns;
			else {
				const columnOrderCopy = [...columnOrder];
				const columnsCopy = [...columns];
				while (columnsCopy.length && columnOrderCopy.length) {
					const targetColumnId = columnOrderCopy.shift();
					const foundIndex = columnsCopy.findIndex((d) => d.id === targetColumnId);
					if (foundIndex > -1) orderedColumns.push(columnsCopy.splice(foundIndex, 1)[0]);
				}
				orderedColumns = [...orderedColumns, ...columnsCopy];
			}
			return orderColumns(orderedColumns, grouping, groupedColumnMode);
		}, getMemoOptions(table.options, "debugTable", "_getOrderColumnsFn"));
	}
};
var getDefaultColumnPinningState = () => ({
	left: [],
	right: []
});
var ColumnPinning = {
	getInitialState: (state) => {
		return {
			columnPinning: getDefaultColumnPinningState(),
			...state
		};
	},
	getDefaultOptions: (table) => {
		return { onColumnPinningChange: makeStateUpdater("columnPinning", table) };
	},
	createColumn: (column, table) => {
		column.pin = (position) => {
			const columnIds = column.getLeafColumns().map((d) => d.id).filter(Boolean);
			table.setColumnPinning((old) => {
				var _old$left3, _old$right3;
				if (position === "right") {
					var _old$left, _old$right;
					return {
						left: ((_old$left = old == null ? void 0 : old.left) != null ? _old$left : []).filter((d) => !(columnIds != null && columnIds.includes(d))),
						right: [...((_old$right = old == null ? void 0 : old.right) != null ? _old$right : []).filter((d) => !(columnIds != null && columnIds.includes(d))), ...columnIds]
					};
				}
				if (position === "left") {
					var _old$left2, _old$right2;
					return {
						left: [...((_old$left2 = old == null ? void 0 : old.left) != null ? _old$left2 : []).filter((d) => !(columnIds != null && columnIds.includes(d))), ...columnIds],
						right: ((_old$right2 = old == null ? void 0 : old.right) != null ? _old$right2 : []).filter((d) => !(columnIds != null && columnIds.includes(d)))
					};
				}
				return {
					left: ((_old$left3 = old == null ? void 0 : old.left) != null ? _old$left3 : []).filter((d) => !(columnIds != null && columnIds.includes(d))),
					right: ((_old$right3 = old == null ? void 0 : old.right) != null ? _old$right3 : []).filter((d) => !(columnIds != null && columnIds.includes(d)))
				};
			});
		};
		column.getCanPin = () => {
			return column.getLeafColumns().some((d) => {
				var _d$columnDef$enablePi, _ref, _table$options$enable;
				return ((_d$columnDef$enablePi = d.columnDef.enablePinning) != null ? _d$columnDef$enablePi : true) && ((_ref = (_table$options$enable = table.options.enableColumnPinning) != null ? _table$options$enable : table.options.enablePinning) != null ? _ref : true);
			});
		};
		column.getIsPinned = () => {
			const leafColumnIds = column.getLeafColumns().map((d) => d.id);
			const { left, right } = table.getState().columnPinning;
			const isLeft = leafColumnIds.some((d) => left == null ? void 0 : left.includes(d));
			const isRight = leafColumnIds.some((d) => right == null ? void 0 : right.includes(d));
			return isLeft ? "left" : isRight ? "right" : false;
		};
		column.getPinnedIndex = () => {
			var _table$getState$colum, _table$getState$colum2;
			const position = column.getIsPinned();
			return position ? (_table$getState$colum = (_table$getState$colum2 = table.getState().columnPinning) == null || (_table$getState$colum2 = _table$getState$colum2[position]) == null ? void 0 : _table$getState$colum2.indexOf(column.id)) != null ? _table$getState$colum : -1 : 0;
		};
	},
	createRow: (row, table) => {
		row.getCenterVisibleCells = memo$1(() => [
			row._getAllVisibleCells(),
			table.getState().columnPinning.left,
			table.getState().columnPinning.right
		], (allCells, left, right) => {
			const leftAndRight = [...left != null ? left : [], ...right != null ? right : []];
			return allCells.filter((d) => !leftAndRight.includes(d.column.id));
		}, getMemoOptions(table.options, "debugRows", "getCenterVisibleCells"));
		row.getLeftVisibleCells = memo$1(() => [row._getAllVisibleCells(), table.getState().columnPinning.left], (allCells, left) => {
			return (left != null ? left : []).map((columnId) => allCells.find((cell) => cell.column.id === columnId)).filter(Boolean).map((d) => ({
				...d,
				position: "left"
			}));
		}, getMemoOptions(table.options, "debugRows", "getLeftVisibleCells"));
		row.getRightVisibleCells = memo$1(() => [row._getAllVisibleCells(), table.getState().columnPinning.right], (allCells, right) => {
			return (right != null ? right : []).map((columnId) => allCells.find((cell) => cell.column.id === columnId)).filter(Boolean).map((d) => ({
				...d,
				position: "right"
			}));
		}, getMemoOptions(table.options, "debugRows", "getRightVisibleCells"));
	},
	createTable: (table) => {
		table.setColumnPinning = (updater) => table.options.onColumnPinningChange == null ? void 0 : table.options.onColumnPinningChange(updater);
		table.resetColumnPinning = (defaultState) => {
			var _table$initialState$c, _table$initialState;
			return table.setColumnPinning(defaultState ? getDefaultColumnPinningState() : (_table$initialState$c = (_table$initialState = table.initialState) == null ? void 0 : _table$initialState.columnPinning) != null ? _table$initialState$c : getDefaultColumnPinningState());
		};
		table.getIsSomeColumnsPinned = (position) => {
			var _pinningState$positio;
			const pinningState = table.getState().columnPinning;
			if (!position) {
				var _pinningState$left, _pinningState$right;
				return Boolean(((_pinningState$left = pinningState.left) == null ? void 0 : _pinningState$left.length) || ((_pinningState$right = pinningState.right) == null ? void 0 : _pinningState$right.length));
			}
			return Boolean((_pinningState$positio = pinningState[position]) == null ? void 0 : _pinningState$positio.length);
		};
		table.getLeftLeafColumns = memo$1(() => [table.getAllLeafColumns(), table.getState().columnPinning.left], (allColumns, left) => {
			return (left != null ? left : []).map((columnId) => allColumns.find((column) => column.id === columnId)).filter(Boolean);
		}, getMemoOptions(table.options, "debugColumns", "getLeftLeafColumns"));
		table.getRightLeafColumns = memo$1(() => [table.getAllLeafColumns(), table.getState().columnPinning.right], (allColumns, right) => {
			return (right != null ? right : []).map((columnId) => allColumns.find((column) => column.id === columnId)).filter(Boolean);
		}, getMemoOptions(table.options, "debugColumns", "getRightLeafColumns"));
		table.getCenterLeafColumns = memo$1(() => [
			table.getAllLeafColumns(),
			table.getState().columnPinning.left,
			table.getState().columnPinning.right
		], (allColumns, left, right) => {
			const leftAndRight = [...left != null ? left : [], ...right != null ? right : []];
			return allColumns.filter((d) => !leftAndRight.includes(d.id));
		}, getMemoOptions(table.options, "debugColumns", "getCenterLeafColumns"));
	}
};
function safelyAccessDocument(_document) {
	return _document || (typeof document !== "undefined" ? document : null);
}
var defaultColumnSizing = {
	size: 150,
	minSize: 20,
	maxSize: Number.MAX_SAFE_INTEGER
};
var getDefaultColumnSizingInfoState = () => ({
	startOffset: null,
	startSize: null,
	deltaOffset: null,
	deltaPercentage: null,
	isResizingColumn: false,
	columnSizingStart: []
});
var ColumnSizing = {
	getDefaultColumnDef: () => {
		return defaultColumnSizing;
	},
	getInitialState: (state) => {
		return {
			columnSizing: {},
			columnSizingInfo: getDefaultColumnSizingInfoState(),
			...state
		};
	},
	getDefaultOptions: (table) => {
		return {
			columnResizeMode: "onEnd",
			columnResizeDirection: "ltr",
			onColumnSizingChange: makeStateUpdater("columnSizing", table),
			onColumnSizingInfoChange: makeStateUpdater("columnSizingInfo", table)
		};
	},
	createColumn: (column, table) => {
		column.getSize = () => {
			var _column$columnDef$min, _ref, _column$columnDef$max;
			const columnSize = table.getState().columnSizing[column.id];
			return Math.min(Math.max((_column$columnDef$min = column.columnDef.minSize) != null ? _column$columnDef$min : defaultColumnSizing.minSize, (_ref = columnSize != null ? columnSize : column.columnDef.size) != null ? _ref : defaultColumnSizing.size), (_column$columnDef$max = column.columnDef.maxSize) != null ? _column$columnDef$max : defaultColumnSizing.maxSize);
		};
		column.getStart = memo$1((position) => [
			position,
			_getVisibleLeafColumns(table, position),
			table.getState().columnSizing
		], (position, columns) => columns.slice(0, column.getIndex(position)).reduce((sum, column) => sum + column.getSize(), 0), getMemoOptions(table.options, "debugColumns", "getStart"));
		column.getAfter = memo$1((position) => [
			position,
			_getVisibleLeafColumns(table, position),
			table.getState().columnSizing
		], (position, columns) => columns.slice(column.getIndex(position) + 1).reduce((sum, column) => sum + column.getSize(), 0), getMemoOptions(table.options, "debugColumns", "getAfter"));
		column.resetSize = () => {
			table.setColumnSizing((_ref2) => {
				let { [column.id]: _, ...rest } = _ref2;
				return rest;
			});
		};
		column.getCanResize = () => {
			var _column$columnDef$ena, _table$options$enable;
			return ((_column$columnDef$ena = column.columnDef.enableResizing) != null ? _column$columnDef$ena : true) && ((_table$options$enable = table.options.enableColumnResizing) != null ? _table$options$enable : true);
		};
		column.getIsResizing = () => {
			return table.getState().columnSizingInfo.isResizingColumn === column.id;
		};
	},
	createHeader: (header, table) => {
		header.getSize = () => {
			let sum = 0;
			const recurse = (header) => {
				if (header.subHeaders.length) header.subHeaders.forEach(recurse);
				else {
					var _header$column$getSiz;
					sum += (_header$column$getSiz = header.column.getSize()) != null ? _header$column$getSiz : 0;
				}
			};
			recurse(header);
			return sum;
		};
		header.getStart = () => {
			if (header.index > 0) {
				const prevSiblingHeader = header.headerGroup.headers[header.index - 1];
				return prevSiblingHeader.getStart() + prevSiblingHeader.getSize();
			}
			return 0;
		};
		header.getResizeHandler = (_contextDocument) => {
			const column = table.getColumn(header.column.id);
			const canResize = column == null ? void 0 : column.getCanResize();
			return (e) => {
				if (!column || !canResize) return;
				e.persist == null || e.persist();
				if (isTouchStartEvent(e)) {
					if (e.touches && e.touches.length > 1) return;
				}
				const startSize = header.getSize();
				const columnSizingStart = header ? header.getLeafHeaders().map((d) => [d.column.id, d.column.getSize()]) : [[column.id, column.getSize()]];
				const clientX = isTouchStartEvent(e) ? Math.round(e.touches[0].clientX) : e.clientX;
				const newColumnSizing = {};
				const updateOffset = (eventType, clientXPos) => {
					if (typeof clientXPos !== "number") return;
					table.setColumnSizingInfo((old) => {
						var _old$startOffset, _old$startSize;
						const deltaDirection = table.options.columnResizeDirection === "rtl" ? -1 : 1;
						const deltaOffset = (clientXPos - ((_old$startOffset = old == null ? void 0 : old.startOffset) != null ? _old$startOffset : 0)) * deltaDirection;
						const deltaPercentage = Math.max(deltaOffset / ((_old$startSize = old == null ? void 0 : old.startSize) != null ? _old$startSize : 0), -.999999);
						old.columnSizingStart.forEach((_ref3) => {
							let [columnId, headerSize] = _ref3;
							newColumnSizing[columnId] = Math.round(Math.max(headerSize + headerSize * deltaPercentage, 0) * 100) / 100;
						});
						return {
							...old,
							deltaOffset,
							deltaPercentage
						};
					});
					if (table.options.columnResizeMode === "onChange" || eventType === "end") table.setColumnSizing((old) => ({
						...old,
						...newColumnSizing
					}));
				};
				const onMove = (clientXPos) => updateOffset("move", clientXPos);
				const onEnd = (clientXPos) => {
					updateOffset("end", clientXPos);
					table.setColumnSizingInfo((old) => ({
						...old,
						isResizingColumn: false,
						startOffset: null,
						startSize: null,
						deltaOffset: null,
						deltaPercentage: null,
						columnSizingStart: []
					}));
				};
				const contextDocument = safelyAccessDocument(_contextDocument);
				const mouseEvents = {
					moveHandler: (e) => onMove(e.clientX),
					upHandler: (e) => {
						contextDocument?.removeEventListener("mousemove", mouseEvents.moveHandler);
						contextDocument?.removeEventListener("mouseup", mouseEvents.upHandler);
						onEnd(e.clientX);
					}
				};
				const touchEvents = {
					moveHandler: (e) => {
						if (e.cancelable) {
							e.preventDefault();
							e.stopPropagation();
						}
						onMove(e.touches[0].clientX);
						return false;
					},
					upHandler: (e) => {
						var _e$touches$;
						contextDocument?.removeEventListener("touchmove", touchEvents.moveHandler);
						contextDocument?.removeEventListener("touchend", touchEvents.upHandler);
						if (e.cancelable) {
							e.preventDefault();
							e.stopPropagation();
						}
						onEnd((_e$touches$ = e.touches[0]) == null ? void 0 : _e$touches$.clientX);
					}
				};
				const passiveIfSupported = passiveEventSupported() ? { passive: false } : false;
				if (isTouchStartEvent(e)) {
					contextDocument?.addEventListener("touchmove", touchEvents.moveHandler, passiveIfSupported);
					contextDocument?.addEventListener("touchend", touchEvents.upHandler, passiveIfSupported);
				} else {
					contextDocument?.addEventListener("mousemove", mouseEvents.moveHandler, passiveIfSupported);
					contextDocument?.addEventListener("mouseup", mouseEvents.upHandler, passiveIfSupported);
				}
				table.setColumnSizingInfo((old) => ({
					...old,
					startOffset: clientX,
					startSize,
					deltaOffset: 0,
					deltaPercentage: 0,
					columnSizingStart,
					isResizingColumn: column.id
				}));
			};
		};
	},
	createTable: (table) => {
		table.setColumnSizing = (updater) => table.options.onColumnSizingChange == null ? void 0 : table.options.onColumnSizingChange(updater);
		table.setColumnSizingInfo = (updater) => table.options.onColumnSizingInfoChange == null ? void 0 : table.options.onColumnSizingInfoChange(updater);
		table.resetColumnSizing = (defaultState) => {
			var _table$initialState$c;
			table.setColumnSizing(defaultState ? {} : (_table$initialState$c = table.initialState.columnSizing) != null ? _table$initialState$c : {});
		};
		table.resetHeaderSizeInfo = (defaultState) => {
			var _table$initialState$c2;
			table.setColumnSizingInfo(defaultState ? getDefaultColumnSizingInfoState() : (_table$initialState$c2 = table.initialState.columnSizingInfo) != null ? _table$initialState$c2 : getDefaultColumnSizingInfoState());
		};
		table.getTotalSize = () => {
			var _table$getHeaderGroup, _table$getHeaderGroup2;
			return (_table$getHeaderGroup = (_table$getHeaderGroup2 = table.getHeaderGroups()[0]) == null ? void 0 : _table$getHeaderGroup2.headers.reduce((sum, header) => {
				return sum + header.getSize();
			}, 0)) != null ? _table$getHeaderGroup : 0;
		};
		table.getLeftTotalSize = () => {
			var _table$getLeftHeaderG, _table$getLeftHeaderG2;
			return (_table$getLeftHeaderG = (_table$getLeftHeaderG2 = table.getLeftHeaderGroups()[0]) == null ? void 0 : _table$getLeftHeaderG2.headers.reduce((sum, header) => {
				return sum + header.getSize();
			}, 0)) != null ? _table$getLeftHeaderG : 0;
		};
		table.getCenterTotalSize = () => {
			var _table$getCenterHeade, _table$getCenterHeade2;
			return (_table$getCenterHeade = (_table$getCenterHeade2 = table.getCenterHeaderGroups()[0]) == null ? void 0 : _table$getCenterHeade2.headers.reduce((sum, header) => {
				return sum + header.getSize();
			}, 0)) != null ? _table$getCenterHeade : 0;
		};
		table.getRightTotalSize = () => {
			var _table$getRightHeader, _table$getRightHeader2;
			return (_table$getRightHeader = (_table$getRightHeader2 = table.getRightHeaderGroups()[0]) == null ? void 0 : _table$getRightHeader2.headers.reduce((sum, header) => {
				return sum + header.getSize();
			}, 0)) != null ? _table$getRightHeader : 0;
		};
	}
};
var passiveSupported = null;
function passiveEventSupported() {
	if (typeof passiveSupported === "boolean") return passiveSupported;
	let supported = false;
	try {
		const options = { get passive() {
			supported = true;
			return false;
		} };
		const noop = () => {};
		window.addEventListener("test", noop, options);
		window.removeEventListener("test", noop);
	} catch (err) {
		supported = false;
	}
	passiveSupported = supported;
	return passiveSupported;
}
function isTouchStartEvent(e) {
	return e.type === "touchstart";
}
var ColumnVisibility = {
	getInitialState: (state) => {
		return {
			columnVisibility: {},
			...state
		};
	},
	getDefaultOptions: (table) => {
		return { onColumnVisibilityChange: makeStateUpdater("columnVisibility", table) };
	},
	createColumn: (column, table) => {
		column.toggleVisibility = (value) => {
			if (column.getCanHide()) table.setColumnVisibility((old) => ({
				...old,
				[column.id]: value != null ? value : !column.getIsVisible()
			}));
		};
		column.getIsVisible = () => {
			var _ref, _table$getState$colum;
			const childColumns = column.columns;
			return (_ref = childColumns.length ? childColumns.some((c) => c.getIsVisible()) : (_table$getState$colum = table.getState().columnVisibility) == null ? void 0 : _table$getState$colum[column.id]) != null ? _ref : true;
		};
		column.getCanHide = () => {
			var _column$columnDef$ena, _table$options$enable;
			return ((_column$columnDef$ena = column.columnDef.enableHiding) != null ? _column$columnDef$ena : true) && ((_table$options$enable = table.options.enableHiding) != null ? _table$options$enable : true);
		};
		column.getToggleVisibilityHandler = () => {
			return (e) => {
				column.toggleVisibility == null || column.toggleVisibility(e.target.checked);
			};
		};
	},
	createRow: (row, table) => {
		row._getAllVisibleCells = memo$1(() => [row.getAllCells(), table.getState().columnVisibility], (cells) => {
			return cells.filter((cell) => cell.column.getIsVisible());
		}, getMemoOptions(table.options, "debugRows", "_getAllVisibleCells"));
		row.getVisibleCells = memo$1(() => [
			row.getLeftVisibleCells(),
			row.getCenterVisibleCells(),
			row.getRightVisibleCells()
		], (left, center, right) => [
			...left,
			...center,
			...right
		], getMemoOptions(table.options, "debugRows", "getVisibleCells"));
	},
	createTable: (table) => {
		const makeVisibleColumnsMethod = (key, getColumns) => {
			return memo$1(() => [getColumns(), getColumns().filter((d) => d.getIsVisible()).map((d) => d.id).join("_")], (columns) => {
				return columns.filter((d) => d.getIsVisible == null ? void 0 : d.getIsVisible());
			}, getMemoOptions(table.options, "debugColumns", key));
		};
		table.getVisibleFlatColumns = makeVisibleColumnsMethod("getVisibleFlatColumns", () => table.getAllFlatColumns());
		table.getVisibleLeafColumns = makeVisibleColumnsMethod("getVisibleLeafColumns", () => table.getAllLeafColumns());
		table.getLeftVisibleLeafColumns = makeVisibleColumnsMethod("getLeftVisibleLeafColumns", () => table.getLeftLeafColumns());
		table.getRightVisibleLeafColumns = makeVisibleColumnsMethod("getRightVisibleLeafColumns", () => table.getRightLeafColumns());
		table.getCenterVisibleLeafColumns = makeVisibleColumnsMethod("getCenterVisibleLeafColumns", () => table.getCenterLeafColumns());
		table.setColumnVisibility = (updater) => table.options.onColumnVisibilityChange == null ? void 0 : table.options.onColumnVisibilityChange(updater);
		table.resetColumnVisibility = (defaultState) => {
			var _table$initialState$c;
			table.setColumnVisibility(defaultState ? {} : (_table$initialState$c = table.initialState.columnVisibility) != null ? _table$initialState$c : {});
		};
		table.toggleAllColumnsVisible = (value) => {
			var _value;
			value = (_value = value) != null ? _value : !table.getIsAllColumnsVisible();
			table.setColumnVisibility(table.getAllLeafColumns().reduce((obj, column) => ({
				...obj,
				[column.id]: !value ? !(column.getCanHide != null && column.getCanHide()) : value
			}), {}));
		};
		table.getIsAllColumnsVisible = () => !table.getAllLeafColumns().some((column) => !(column.getIsVisible != null && column.getIsVisible()));
		table.getIsSomeColumnsVisible = () => table.getAllLeafColumns().some((column) => column.getIsVisible == null ? void 0 : column.getIsVisible());
		table.getToggleAllColumnsVisibilityHandler = () => {
			return (e) => {
				var _target;
				table.toggleAllColumnsVisible((_target = e.target) == null ? void 0 : _target.checked);
			};
		};
	}
};
function _getVisibleLeafColumns(table, position) {
	return !position ? table.getVisibleLeafColumns() : position === "center" ? table.getCenterVisibleLeafColumns() : position === "left" ? table.getLeftVisibleLeafColumns() : table.getRightVisibleLeafColumns();
}
var GlobalFaceting = { createTable: (table) => {
	table._getGlobalFacetedRowModel = table.options.getFacetedRowModel && table.options.getFacetedRowModel(table, "__global__");
	table.getGlobalFacetedRowModel = () => {
		if (table.options.manualFiltering || !table._getGlobalFacetedRowModel) return table.getPreFilteredRowModel();
		return table._getGlobalFacetedRowModel();
	};
	table._getGlobalFacetedUniqueValues = table.options.getFacetedUniqueValues && table.options.getFacetedUniqueValues(table, "__global__");
	table.getGlobalFacetedUniqueValues = () => {
		if (!table._getGlobalFacetedUniqueValues) return /* @__PURE__ */ new Map();
		return table._getGlobalFacetedUniqueValues();
	};
	table._getGlobalFacetedMinMaxValues = table.options.getFacetedMinMaxValues && table.options.getFacetedMinMaxValues(table, "__global__");
	table.getGlobalFacetedMinMaxValues = () => {
		if (!table._getGlobalFacetedMinMaxValues) return;
		return table._getGlobalFacetedMinMaxValues();
	};
} };
var GlobalFiltering = {
	getInitialState: (state) => {
		return {
			globalFilter: void 0,
			...state
		};
	},
	getDefaultOptions: (table) => {
		return {
			onGlobalFilterChange: makeStateUpdater("globalFilter", table),
			globalFilterFn: "auto",
			getColumnCanGlobalFilter: (column) => {
				var _table$getCoreRowMode;
				const value = (_table$getCoreRowMode = table.getCoreRowModel().flatRows[0]) == null || (_table$getCoreRowMode = _table$getCoreRowMode._getAllCellsByColumnId()[column.id]) == null ? void 0 : _table$getCoreRowMode.getValue();
				return typeof value === "string" || typeof value === "number";
			}
		};
	},
	createColumn: (column, table) => {
		column.getCanGlobalFilter = () => {
			var _column$columnDef$ena, _table$options$enable, _table$options$enable2, _table$options$getCol;
			return ((_column$columnDef$ena = column.columnDef.enableGlobalFilter) != null ? _column$columnDef$ena : true) && ((_table$options$enable = table.options.enableGlobalFilter) != null ? _table$options$enable : true) && ((_table$options$enable2 = table.options.enableFilters) != null ? _table$options$enable2 : true) && ((_table$options$getCol = table.options.getColumnCanGlobalFilter == null ? void 0 : table.options.getColumnCanGlobalFilter(column)) != null ? _table$options$getCol : true) && !!column.accessorFn;
		};
	},
	createTable: (table) => {
		table.getGlobalAutoFilterFn = () => {
			return filterFns.includesString;
		};
		table.getGlobalFilterFn = () => {
			var _table$options$filter, _table$options$filter2;
			const { globalFilterFn } = table.options;
			return isFunction(globalFilterFn) ? globalFilterFn : globalFilterFn === "auto" ? table.getGlobalAutoFilterFn() : (_table$options$filter = (_table$options$filter2 = table.options.filterFns) == null ? void 0 : _table$options$filter2[globalFilterFn]) != null ? _table$options$filter : filterFns[globalFilterFn];
		};
		table.setGlobalFilter = (updater) => {
			table.options.onGlobalFilterChange == null || table.options.onGlobalFilterChange(updater);
		};
		table.resetGlobalFilter = (defaultState) => {
			table.setGlobalFilter(defaultState ? void 0 : table.initialState.globalFilter);
		};
	}
};
var RowExpanding = {
	getInitialState: (state) => {
		return {
			expanded: {},
			...state
		};
	},
	getDefaultOptions: (table) => {
		return {
			onExpandedChange: makeStateUpdater("expanded", table),
			paginateExpandedRows: true
		};
	},
	createTable: (table) => {
		let registered = false;
		let queued = false;
		table._autoResetExpanded = () => {
			var _ref, _table$options$autoRe;
			if (!registered) {
				table._queue(() => {
					registered = true;
				});
				return;
			}
			if ((_ref = (_table$options$autoRe = table.options.autoResetAll) != null ? _table$options$autoRe : table.options.autoResetExpanded) != null ? _ref : !table.options.manualExpanding) {
				if (queued) return;
				queued = true;
				table._queue(() => {
					table.resetExpanded();
					queued = false;
				});
			}
		};
		table.setExpanded = (updater) => table.options.onExpandedChange == null ? void 0 : table.options.onExpandedChange(updater);
		table.toggleAllRowsExpanded = (expanded) => {
			if (expanded != null ? expanded : !table.getIsAllRowsExpanded()) table.setExpanded(true);
			else table.setExpanded({});
		};
		table.resetExpanded = (defaultState) => {
			var _table$initialState$e, _table$initialState;
			table.setExpanded(defaultState ? {} : (_table$initialState$e = (_table$initialState = table.initialState) == null ? void 0 : _table$initialState.expanded) != null ? _table$initialState$e : {});
		};
		table.getCanSomeRowsExpand = () => {
			return table.getPrePaginationRowModel().flatRows.some((row) => row.getCanExpand());
		};
		table.getToggleAllRowsExpandedHandler = () => {
			return (e) => {
				e.persist == null || e.persist();
				table.toggleAllRowsExpanded();
			};
		};
		table.getIsSomeRowsExpanded = () => {
			const expanded = table.getState().expanded;
			return expanded === true || Object.values(expanded).some(Boolean);
		};
		table.getIsAllRowsExpanded = () => {
			const expanded = table.getState().expanded;
			if (typeof expanded === "boolean") return expanded === true;
			if (!Object.keys(expanded).length) return false;
			if (table.getRowModel().flatRows.some((row) => !row.getIsExpanded())) return false;
			return true;
		};
		table.getExpandedDepth = () => {
			let maxDepth = 0;
			(table.getState().expanded === true ? Object.keys(table.getRowModel().rowsById) : Object.keys(table.getState().expanded)).forEach((id) => {
				const splitId = id.split(".");
				maxDepth = Math.max(maxDepth, splitId.length);
			});
			return maxDepth;
		};
		table.getPreExpandedRowModel = () => table.getSortedRowModel();
		table.getExpandedRowModel = () => {
			if (!table._getExpandedRowModel && table.options.getExpandedRowModel) table._getExpandedRowModel = table.options.getExpandedRowModel(table);
			if (table.options.manualExpanding || !table._getExpandedRowModel) return table.getPreExpandedRowModel();
			return table._getExpandedRowModel();
		};
	},
	createRow: (row, table) => {
		row.toggleExpanded = (expanded) => {
			table.setExpanded((old) => {
				var _expanded;
				const exists = old === true ? true : !!(old != null && old[row.id]);
				let oldExpanded = {};
				if (old === true) Object.keys(table.getRowModel().rowsById).forEach((rowId) => {
					oldExpanded[rowId] = true;
				});
				else oldExpanded = old;
				expanded = (_expanded = expanded) != null ? _expanded : !exists;
				if (!exists && expanded) return {
					...oldExpanded,
					[row.id]: true
				};
				if (exists && !expanded) {
					const { [row.id]: _, ...rest } = oldExpanded;
					return rest;
				}
				return old;
			});
		};
		row.getIsExpanded = () => {
			var _table$options$getIsR;
			const expanded = table.getState().expanded;
			return !!((_table$options$getIsR = table.options.getIsRowExpanded == null ? void 0 : table.options.getIsRowExpanded(row)) != null ? _table$options$getIsR : expanded === true || (expanded == null ? void 0 : expanded[row.id]));
		};
		row.getCanExpand = () => {
			var _table$options$getRow, _table$options$enable, _row$subRows;
			return (_table$options$getRow = table.options.getRowCanExpand == null ? void 0 : table.options.getRowCanExpand(row)) != null ? _table$options$getRow : ((_table$options$enable = table.options.enableExpanding) != null ? _table$options$enable : true) && !!((_row$subRows = row.subRows) != null && _row$subRows.length);
		};
		row.getIsAllParentsExpanded = () => {
			let isFullyExpanded = true;
			let currentRow = row;
			while (isFullyExpanded && currentRow.parentId) {
				currentRow = table.getRow(currentRow.parentId, true);
				isFullyExpanded = currentRow.getIsExpanded();
			}
			return isFullyExpanded;
		};
		row.getToggleExpandedHandler = () => {
			const canExpand = row.getCanExpand();
			return () => {
				if (!canExpand) return;
				row.toggleExpanded();
			};
		};
	}
};
var defaultPageIndex = 0;
var defaultPageSize = 10;
var getDefaultPaginationState = () => ({
	pageIndex: defaultPageIndex,
	pageSize: defaultPageSize
});
var RowPagination = {
	getInitialState: (state) => {
		return {
			...state,
			pagination: {
				...getDefaultPaginationState(),
				...state == null ? void 0 : state.pagination
			}
		};
	},
	getDefaultOptions: (table) => {
		return { onPaginationChange: makeStateUpdater("pagination", table) };
	},
	createTable: (table) => {
		let registered = false;
		let queued = false;
		table._autoResetPageIndex = () => {
			var _ref, _table$options$autoRe;
			if (!registered) {
				table._queue(() => {
					registered = true;
				});
				return;
			}
			if ((_ref = (_table$options$autoRe = table.options.autoResetAll) != null ? _table$options$autoRe : table.options.autoResetPageIndex) != null ? _ref : !table.options.manualPagination) {
				if (queued) return;
				queued = true;
				table._queue(() => {
					table.resetPageIndex();
					queued = false;
				});
			}
		};
		table.setPagination = (updater) => {
			const safeUpdater = (old) => {
				return functionalUpdate(updater, old);
			};
			return table.options.onPaginationChange == null ? void 0 : table.options.onPaginationChange(safeUpdater);
		};
		table.resetPagination = (defaultState) => {
			var _table$initialState$p;
			table.setPagination(defaultState ? getDefaultPaginationState() : (_table$initialState$p = table.initialState.pagination) != null ? _table$initialState$p : getDefaultPaginationState());
		};
		table.setPageIndex = (updater) => {
			table.setPagination((old) => {
				let pageIndex = functionalUpdate(updater, old.pageIndex);
				const maxPageIndex = typeof table.options.pageCount === "undefined" || table.options.pageCount === -1 ? Number.MAX_SAFE_INTEGER : table.options.pageCount - 1;
				pageIndex = Math.max(0, Math.min(pageIndex, maxPageIndex));
				return {
					...old,
					pageIndex
				};
			});
		};
		table.resetPageIndex = (defaultState) => {
			var _table$initialState$p2, _table$initialState;
			table.setPageIndex(defaultState ? defaultPageIndex : (_table$initialState$p2 = (_table$initialState = table.initialState) == null || (_table$initialState = _table$initialState.pagination) == null ? void 0 : _table$initialState.pageIndex) != null ? _table$initialState$p2 : defaultPageIndex);
		};
		table.resetPageSize = (defaultState) => {
			var _table$initialState$p3, _table$initialState2;
			table.setPageSize(defaultState ? defaultPageSize : (_table$initialState$p3 = (_table$initialState2 = table.initialState) == null || (_table$initialState2 = _table$initialState2.pagination) == null ? void 0 : _table$initialState2.pageSize) != null ? _table$initialState$p3 : defaultPageSize);
		};
		table.setPageSize = (updater) => {
			table.setPagination((old) => {
				const pageSize = Math.max(1, functionalUpdate(updater, old.pageSize));
				const topRowIndex = old.pageSize * old.pageIndex;
				const pageIndex = Math.floor(topRowIndex / pageSize);
				return {
					...old,
					pageIndex,
					pageSize
				};
			});
		};
		table.setPageCount = (updater) => table.setPagination((old) => {
			var _table$options$pageCo;
			let newPageCount = functionalUpdate(updater, (_table$options$pageCo = table.options.pageCount) != null ? _table$options$pageCo : -1);
			if (typeof newPageCount === "number") newPageCount = Math.max(-1, newPageCount);
			return {
				...old,
				pageCount: newPageCount
			};
		});
		table.getPageOptions = memo$1(() => [table.getPageCount()], (pageCount) => {
			let pageOptions = [];
			if (pageCount && pageCount > 0) pageOptions = [...new Array(pageCount)].fill(null).map((_, i) => i);
			return pageOptions;
		}, getMemoOptions(table.options, "debugTable", "getPageOptions"));
		table.getCanPreviousPage = () => table.getState().pagination.pageIndex > 0;
		table.getCanNextPage = () => {
			const { pageIndex } = table.getState().pagination;
			const pageCount = table.getPageCount();
			if (pageCount === -1) return true;
			if (pageCount === 0) return false;
			return pageIndex < pageCount - 1;
		};
		table.previousPage = () => {
			return table.setPageIndex((old) => old - 1);
		};
		table.nextPage = () => {
			return table.setPageIndex((old) => {
				return old + 1;
			});
		};
		table.firstPage = () => {
			return table.setPageIndex(0);
		};
		table.lastPage = () => {
			return table.setPageIndex(table.getPageCount() - 1);
		};
		table.getPrePaginationRowModel = () => table.getExpandedRowModel();
		table.getPaginationRowModel = () => {
			if (!table._getPaginationRowModel && table.options.getPaginationRowModel) table._getPaginationRowModel = table.options.getPaginationRowModel(table);
			if (table.options.manualPagination || !table._getPaginationRowModel) return table.getPrePaginationRowModel();
			return table._getPaginationRowModel();
		};
		table.getPageCount = () => {
			var _table$options$pageCo2;
			return (_table$options$pageCo2 = table.options.pageCount) != null ? _table$options$pageCo2 : Math.ceil(table.getRowCount() / table.getState().pagination.pageSize);
		};
		table.getRowCount = () => {
			var _table$options$rowCou;
			return (_table$options$rowCou = table.options.rowCount) != null ? _table$options$rowCou : table.getPrePaginationRowModel().rows.length;
		};
	}
};
var getDefaultRowPinningState = () => ({
	top: [],
	bottom: []
});
var RowPinning = {
	getInitialState: (state) => {
		return {
			rowPinning: getDefaultRowPinningState(),
			...state
		};
	},
	getDefaultOptions: (table) => {
		return { onRowPinningChange: makeStateUpdater("rowPinning", table) };
	},
	createRow: (row, table) => {
		row.pin = (position, includeLeafRows, includeParentRows) => {
			const leafRowIds = includeLeafRows ? row.getLeafRows().map((_ref) => {
				let { id } = _ref;
				return id;
			}) : [];
			const parentRowIds = includeParentRows ? row.getParentRows().map((_ref2) => {
				let { id } = _ref2;
				return id;
			}) : [];
			const rowIds = /* @__PURE__ */ new Set([
				...parentRowIds,
				row.id,
				...leafRowIds
			]);
			table.setRowPinning((old) => {
				var _old$top3, _old$bottom3;
				if (position === "bottom") {
					var _old$top, _old$bottom;
					return {
						top: ((_old$top = old == null ? void 0 : old.top) != null ? _old$top : []).filter((d) => !(rowIds != null && rowIds.has(d))),
						bottom: [...((_old$bottom = old == null ? void 0 : old.bottom) != null ? _old$bottom : []).filter((d) => !(rowIds != null && rowIds.has(d))), ...Array.from(rowIds)]
					};
				}
				if (position === "top") {
					var _old$top2, _old$bottom2;
					return {
						top: [...((_old$top2 = old == null ? void 0 : old.top) != null ? _old$top2 : []).filter((d) => !(rowIds != null && rowIds.has(d))), ...Array.from(rowIds)],
						bottom: ((_old$bottom2 = old == null ? void 0 : old.bottom) != null ? _old$bottom2 : []).filter((d) => !(rowIds != null && rowIds.has(d)))
					};
				}
				return {
					top: ((_old$top3 = old == null ? void 0 : old.top) != null ? _old$top3 : []).filter((d) => !(rowIds != null && rowIds.has(d))),
					bottom: ((_old$bottom3 = old == null ? void 0 : old.bottom) != null ? _old$bottom3 : []).filter((d) => !(rowIds != null && rowIds.has(d)))
				};
			});
		};
		row.getCanPin = () => {
			var _ref3;
			const { enableRowPinning, enablePinning } = table.options;
			if (typeof enableRowPinning === "function") return enableRowPinning(row);
			return (_ref3 = enableRowPinning != null ? enableRowPinning : enablePinning) != null ? _ref3 : true;
		};
		row.getIsPinned = () => {
			const rowIds = [row.id];
			const { top, bottom } = table.getState().rowPinning;
			const isTop = rowIds.some((d) => top == null ? void 0 : top.includes(d));
			const isBottom = rowIds.some((d) => bottom == null ? void 0 : bottom.includes(d));
			return isTop ? "top" : isBottom ? "bottom" : false;
		};
		row.getPinnedIndex = () => {
			var _ref4, _visiblePinnedRowIds$;
			const position = row.getIsPinned();
			if (!position) return -1;
			const visiblePinnedRowIds = (_ref4 = position === "top" ? table.getTopRows() : table.getBottomRows()) == null ? void 0 : _ref4.map((_ref5) => {
				let { id } = _ref5;
				return id;
			});
			return (_visiblePinnedRowIds$ = visiblePinnedRowIds == null ? void 0 : visiblePinnedRowIds.indexOf(row.id)) != null ? _visiblePinnedRowIds$ : -1;
		};
	},
	createTable: (table) => {
		table.setRowPinning = (updater) => table.options.onRowPinningChange == null ? void 0 : table.options.onRowPinningChange(updater);
		table.resetRowPinning = (defaultState) => {
			var _table$initialState$r, _table$initialState;
			return table.setRowPinning(defaultState ? getDefaultRowPinningState() : (_table$initialState$r = (_table$initialState = table.initialState) == null ? void 0 : _table$initialState.rowPinning) != null ? _table$initialState$r : getDefaultRowPinningState());
		};
		table.getIsSomeRowsPinned = (position) => {
			var _pinningState$positio;
			const pinningState = table.getState().rowPinning;
			if (!position) {
				var _pinningState$top, _pinningState$bottom;
				return Boolean(((_pinningState$top = pinningState.top) == null ? void 0 : _pinningState$top.length) || ((_pinningState$bottom = pinningState.bottom) == null ? void 0 : _pinningState$bottom.length));
			}
			return Boolean((_pinningState$positio = pinningState[position]) == null ? void 0 : _pinningState$positio.length);
		};
		table._getPinnedRows = (visibleRows, pinnedRowIds, position) => {
			var _table$options$keepPi;
			return (((_table$options$keepPi = table.options.keepPinnedRows) != null ? _table$options$keepPi : true) ? (pinnedRowIds != null ? pinnedRowIds : []).map((rowId) => {
				const row = table.getRow(rowId, true);
				return row.getIsAllParentsExpanded() ? row : null;
			}) : (pinnedRowIds != null ? pinnedRowIds : []).map((rowId) => visibleRows.find((row) => row.id === rowId))).filter(Boolean).map((d) => ({
				...d,
				position
			}));
		};
		table.getTopRows = memo$1(() => [table.getRowModel().rows, table.getState().rowPinning.top], (allRows, topPinnedRowIds) => table._getPinnedRows(allRows, topPinnedRowIds, "top"), getMemoOptions(table.options, "debugRows", "getTopRows"));
		table.getBottomRows = memo$1(() => [table.getRowModel().rows, table.getState().rowPinning.bottom], (allRows, bottomPinnedRowIds) => table._getPinnedRows(allRows, bottomPinnedRowIds, "bottom"), getMemoOptions(table.options, "debugRows", "getBottomRows"));
		table.getCenterRows = memo$1(() => [
			table.getRowModel().rows,
			table.getState().rowPinning.top,
			table.getState().rowPinning.bottom
		], (allRows, top, bottom) => {
			const topAndBottom = /* @__PURE__ */ new Set([...top != null ? top : [], ...bottom != null ? bottom : []]);
			return allRows.filter((d) => !topAndBottom.has(d.id));
		}, getMemoOptions(table.options, "debugRows", "getCenterRows"));
	}
};
var RowSelection = {
	getInitialState: (state) => {
		return {
			rowSelection: {},
			...state
		};
	},
	getDefaultOptions: (table) => {
		return {
			onRowSelectionChange: makeStateUpdater("rowSelection", table),
			enableRowSelection: true,
			enableMultiRowSelection: true,
			enableSubRowSelection: true
		};
	},
	createTable: (table) => {
		table.setRowSelection = (updater) => table.options.onRowSelectionChange == null ? void 0 : table.options.onRowSelectionChange(updater);
		table.resetRowSelection = (defaultState) => {
			var _table$initialState$r;
			return table.setRowSelection(defaultState ? {} : (_table$initialState$r = table.initialState.rowSelection) != null ? _table$initialState$r : {});
		};
		table.toggleAllRowsSelected = (value) => {
			table.setRowSelection((old) => {
				value = typeof value !== "undefined" ? value : !table.getIsAllRowsSelected();
				const rowSelection = { ...old };
				const preGroupedFlatRows = table.getPreGroupedRowModel().flatRows;
				if (value) preGroupedFlatRows.forEach((row) => {
					if (!row.getCanSelect()) return;
					rowSelection[row.id] = true;
				});
				else preGroupedFlatRows.forEach((row) => {
					delete rowSelection[row.id];
				});
				return rowSelection;
			});
		};
		table.toggleAllPageRowsSelected = (value) => table.setRowSelection((old) => {
			const resolvedValue = typeof value !== "undefined" ? value : !table.getIsAllPageRowsSelected();
			const rowSelection = { ...old };
			table.getRowModel().rows.forEach((row) => {
				mutateRowIsSelected(rowSelection, row.id, resolvedValue, true, table);
			});
			return rowSelection;
		});
		table.getPreSelectedRowModel = () => table.getCoreRowModel();
		table.getSelectedRowModel = memo$1(() => [table.getState().rowSelection, table.getCoreRowModel()], (rowSelection, rowModel) => {
			if (!Object.keys(rowSelection).length) return {
				rows: [],
				flatRows: [],
				rowsById: {}
			};
			return selectRowsFn(table, rowModel);
		}, getMemoOptions(table.options, "debugTable", "getSelectedRowModel"));
		table.getFilteredSelectedRowModel = memo$1(() => [table.getState().rowSelection, table.getFilteredRowModel()], (rowSelection, rowModel) => {
			if (!Object.keys(rowSelection).length) return {
				rows: [],
				flatRows: [],
				rowsById: {}
			};
			return selectRowsFn(table, rowModel);
		}, getMemoOptions(table.options, "debugTable", "getFilteredSelectedRowModel"));
		table.getGroupedSelectedRowModel = memo$1(() => [table.getState().rowSelection, table.getSortedRowModel()], (rowSelection, rowModel) => {
			if (!Object.keys(rowSelection).length) return {
				rows: [],
				flatRows: [],
				rowsById: {}
			};
			return selectRowsFn(table, rowModel);
		}, getMemoOptions(table.options, "debugTable", "getGroupedSelectedRowModel"));
		table.getIsAllRowsSelected = () => {
			const preGroupedFlatRows = table.getFilteredRowModel().flatRows;
			const { rowSelection } = table.getState();
			let isAllRowsSelected = Boolean(preGroupedFlatRows.length && Object.keys(rowSelection).length);
			if (isAllRowsSelected) {
				if (preGroupedFlatRows.some((row) => row.getCanSelect() && !rowSelection[row.id])) isAllRowsSelected = false;
			}
			return isAllRowsSelected;
		};
		table.getIsAllPageRowsSelected = () => {
			const paginationFlatRows = table.getPaginationRowModel().flatRows.filter((row) => row.getCanSelect());
			const { rowSelection } = table.getState();
			let isAllPageRowsSelected = !!paginationFlatRows.length;
			if (isAllPageRowsSelected && paginationFlatRows.some((row) => !rowSelection[row.id])) isAllPageRowsSelected = false;
			return isAllPageRowsSelected;
		};
		table.getIsSomeRowsSelected = () => {
			var _table$getState$rowSe;
			const totalSelected = Object.keys((_table$getState$rowSe = table.getState().rowSelection) != null ? _table$getState$rowSe : {}).length;
			return totalSelected > 0 && totalSelected < table.getFilteredRowModel().flatRows.length;
		};
		table.getIsSomePageRowsSelected = () => {
			const paginationFlatRows = table.getPaginationRowModel().flatRows;
			return table.getIsAllPageRowsSelected() ? false : paginationFlatRows.filter((row) => row.getCanSelect()).some((d) => d.getIsSelected() || d.getIsSomeSelected());
		};
		table.getToggleAllRowsSelectedHandler = () => {
			return (e) => {
				table.toggleAllRowsSelected(e.target.checked);
			};
		};
		table.getToggleAllPageRowsSelectedHandler = () => {
			return (e) => {
				table.toggleAllPageRowsSelected(e.target.checked);
			};
		};
	},
	createRow: (row, table) => {
		row.toggleSelected = (value, opts) => {
			const isSelected = row.getIsSelected();
			table.setRowSelection((old) => {
				var _opts$selectChildren;
				value = typeof value !== "undefined" ? value : !isSelected;
				if (row.getCanSelect() && isSelected === value) return old;
				const selectedRowIds = { ...old };
				mutateRowIsSelected(selectedRowIds, row.id, value, (_opts$selectChildren = opts == null ? void 0 : opts.selectChildren) != null ? _opts$selectChildren : true, table);
				return selectedRowIds;
			});
		};
		row.getIsSelected = () => {
			const { rowSelection } = table.getState();
			return isRowSelected(row, rowSelection);
		};
		row.getIsSomeSelected = () => {
			const { rowSelection } = table.getState();
			return isSubRowSelected(row, rowSelection) === "some";
		};
		row.getIsAllSubRowsSelected = () => {
			const { rowSelection } = table.getState();
			return isSubRowSelected(row, rowSelection) === "all";
		};
		row.getCanSelect = () => {
			var _table$options$enable;
			if (typeof table.options.enableRowSelection === "function") return table.options.enableRowSelection(row);
			return (_table$options$enable = table.options.enableRowSelection) != null ? _table$options$enable : true;
		};
		row.getCanSelectSubRows = () => {
			var _table$options$enable2;
			if (typeof table.options.enableSubRowSelection === "function") return table.options.enableSubRowSelection(row);
			return (_table$options$enable2 = table.options.enableSubRowSelection) != null ? _table$options$enable2 : true;
		};
		row.getCanMultiSelect = () => {
			var _table$options$enable3;
			if (typeof table.options.enableMultiRowSelection === "function") return table.options.enableMultiRowSelection(row);
			return (_table$options$enable3 = table.options.enableMultiRowSelection) != null ? _table$options$enable3 : true;
		};
		row.getToggleSelectedHandler = () => {
			const canSelect = row.getCanSelect();
			return (e) => {
				var _target;
				if (!canSelect) return;
				row.toggleSelected((_target = e.target) == null ? void 0 : _target.checked);
			};
		};
	}
};
var mutateRowIsSelected = (selectedRowIds, id, value, includeChildren, table) => {
	var _row$subRows;
	const row = table.getRow(id, true);
	if (value) {
		if (!row.getCanMultiSelect()) Object.keys(selectedRowIds).forEach((key) => delete selectedRowIds[key]);
		if (row.getCanSelect()) selectedRowIds[id] = true;
	} else delete selectedRowIds[id];
	if (includeChildren && (_row$subRows = row.subRows) != null && _row$subRows.length && row.getCanSelectSubRows()) row.subRows.forEach((row) => mutateRowIsSelected(selectedRowIds, row.id, value, includeChildren, table));
};
function selectRowsFn(table, rowModel) {
	const rowSelection = table.getState().rowSelection;
	const newSelectedFlatRows = [];
	const newSelectedRowsById = {};
	const recurseRows = function(rows, depth) {
		return rows.map((row) => {
			var _row$subRows2;
			const isSelected = isRowSelected(row, rowSelection);
			if (isSelected) {
				newSelectedFlatRows.push(row);
				newSelectedRowsById[row.id] = row;
			}
			if ((_row$subRows2 = row.subRows) != null && _row$subRows2.length) row = {
				...row,
				subRows: recurseRows(row.subRows)
			};
			if (isSelected) return row;
		}).filter(Boolean);
	};
	return {
		rows: recurseRows(rowModel.rows),
		flatRows: newSelectedFlatRows,
		rowsById: newSelectedRowsById
	};
}
function isRowSelected(row, selection) {
	var _selection$row$id;
	return (_selection$row$id = selection[row.id]) != null ? _selection$row$id : false;
}
function isSubRowSelected(row, selection, table) {
	var _row$subRows3;
	if (!((_row$subRows3 = row.subRows) != null && _row$subRows3.length)) return false;
	let allChildrenSelected = true;
	let someSelected = false;
	row.subRows.forEach((subRow) => {
		if (someSelected && !allChildrenSelected) return;
		if (subRow.getCanSelect()) {
			if (isRowSelected(subRow, selection)) someSelected = true;
			else allChildrenSelected = false;
		}
		if (subRow.subRows && subRow.subRows.length) {
			const subRowChildrenSelected = isSubRowSelected(subRow, selection);
			if (subRowChildrenSelected === "all") someSelected = true;
			else if (subRowChildrenSelected === "some") {
				someSelected = true;
				allChildrenSelected = false;
			} else allChildrenSelected = false;
		}
	});
	return allChildrenSelected ? "all" : someSelected ? "some" : false;
}
var reSplitAlphaNumeric = /([0-9]+)/gm;
var alphanumeric = (rowA, rowB, columnId) => {
	return compareAlphanumeric(toString(rowA.getValue(columnId)).toLowerCase(), toString(rowB.getValue(columnId)).toLowerCase());
};
var alphanumericCaseSensitive = (rowA, rowB, columnId) => {
	return compareAlphanumeric(toString(rowA.getValue(columnId)), toString(rowB.getValue(columnId)));
};
var text = (rowA, rowB, columnId) => {
	return compareBasic(toString(rowA.getValue(columnId)).toLowerCase(), toString(rowB.getValue(columnId)).toLowerCase());
};
var textCaseSensitive = (rowA, rowB, columnId) => {
	return compareBasic(toString(rowA.getValue(columnId)), toString(rowB.getValue(columnId)));
};
var datetime = (rowA, rowB, columnId) => {
	const a = rowA.getValue(columnId);
	const b = rowB.getValue(columnId);
	return a > b ? 1 : a < b ? -1 : 0;
};
var basic = (rowA, rowB, columnId) => {
	return compareBasic(rowA.getValue(columnId), rowB.getValue(columnId));
};
function compareBasic(a, b) {
	return a === b ? 0 : a > b ? 1 : -1;
}
function toString(a) {
	if (typeof a === "number") {
		if (isNaN(a) || a === Infinity || a === -Infinity) return "";
		return String(a);
	}
	if (typeof a === "string") return a;
	return "";
}
function compareAlphanumeric(aStr, bStr) {
	const a = aStr.split(reSplitAlphaNumeric).filter(Boolean);
	const b = bStr.split(reSplitAlphaNumeric).filter(Boolean);
	while (a.length && b.length) {
		const aa = a.shift();
		const bb = b.shift();
		const an = parseInt(aa, 10);
		const bn = parseInt(bb, 10);
		const combo = [an, bn].sort();
		if (isNaN(combo[0])) {
			if (aa > bb) return 1;
			if (bb > aa) return -1;
			continue;
		}
		if (isNaN(combo[1])) return isNaN(an) ? -1 : 1;
		if (an > bn) return 1;
		if (bn > an) return -1;
	}
	return a.length - b.length;
}
var sortingFns = {
	alphanumeric,
	alphanumericCaseSensitive,
	text,
	textCaseSensitive,
	datetime,
	basic
};
var builtInFeatures = [
	Headers,
	ColumnVisibility,
	ColumnOrdering,
	ColumnPinning,
	ColumnFaceting,
	ColumnFiltering,
	GlobalFaceting,
	GlobalFiltering,
	{
		getInitialState: (state) => {
			return {
				sorting: [],
				...state
			};
		},
		getDefaultColumnDef: () => {
			return {
				sortingFn: "auto",
				sortUndefined: 1
			};
		},
		getDefaultOptions: (table) => {
			return {
				onSortingChange: makeStateUpdater("sorting", table),
				isMultiSortEvent: (e) => {
					return e.shiftKey;
				}
			};
		},
		createColumn: (column, table) => {
			column.getAutoSortingFn = () => {
				const firstRows = table.getFilteredRowModel().flatRows.slice(10);
				let isString = false;
				for (const row of firstRows) {
					const value = row == null ? void 0 : row.getValue(column.id);
					if (Object.prototype.toString.call(value) === "[object Date]") return sortingFns.datetime;
					if (typeof value === "string") {
						isString = true;
						if (value.split(reSplitAlphaNumeric).length > 1) return sortingFns.alphanumeric;
					}
				}
				if (isString) return sortingFns.text;
				return sortingFns.basic;
			};
			column.getAutoSortDir = () => {
				const firstRow = table.getFilteredRowModel().flatRows[0];
				if (typeof (firstRow == null ? void 0 : firstRow.getValue(column.id)) === "string") return "asc";
				return "desc";
			};
			column.getSortingFn = () => {
				var _table$options$sortin, _table$options$sortin2;
				if (!column) throw new Error();
				return isFunction(column.columnDef.sortingFn) ? column.columnDef.sortingFn : column.columnDef.sortingFn === "auto" ? column.getAutoSortingFn() : (_table$options$sortin = (_table$options$sortin2 = table.options.sortingFns) == null ? void 0 : _table$options$sortin2[column.columnDef.sortingFn]) != null ? _table$options$sortin : sortingFns[column.columnDef.sortingFn];
			};
			column.toggleSorting = (desc, multi) => {
				const nextSortingOrder = column.getNextSortingOrder();
				const hasManualValue = typeof desc !== "undefined" && desc !== null;
				table.setSorting((old) => {
					const existingSorting = old == null ? void 0 : old.find((d) => d.id === column.id);
					const existingIndex = old == null ? void 0 : old.findIndex((d) => d.id === column.id);
					let newSorting = [];
					let sortAction;
					let nextDesc = hasManualValue ? desc : nextSortingOrder === "desc";
					if (old != null && old.length && column.getCanMultiSort() && multi) {
						if (existingSorting) sortAction = "toggle";
						else sortAction = "add";
					} else if (old != null && old.length && existingIndex !== old.length - 1) sortAction = "replace";
					else if (existingSorting) sortAction = "toggle";
					else sortAction = "replace";
					if (sortAction === "toggle") {
						if (!hasManualValue) {
							if (!nextSortingOrder) sortAction = "remove";
						}
					}
					if (sortAction === "add") {
						var _table$options$maxMul;
						newSorting = [...old, {
							id: column.id,
							desc: nextDesc
						}];
						newSorting.splice(0, newSorting.length - ((_table$options$maxMul = table.options.maxMultiSortColCount) != null ? _table$options$maxMul : Number.MAX_SAFE_INTEGER));
					} else if (sortAction === "toggle") newSorting = old.map((d) => {
						if (d.id === column.id) return {
							...d,
							desc: nextDesc
						};
						return d;
					});
					else if (sortAction === "remove") newSorting = old.filter((d) => d.id !== column.id);
					else newSorting = [{
						id: column.id,
						desc: nextDesc
					}];
					return newSorting;
				});
			};
			column.getFirstSortDir = () => {
				var _ref, _column$columnDef$sor;
				return ((_ref = (_column$columnDef$sor = column.columnDef.sortDescFirst) != null ? _column$columnDef$sor : table.options.sortDescFirst) != null ? _ref : column.getAutoSortDir() === "desc") ? "desc" : "asc";
			};
			column.getNextSortingOrder = (multi) => {
				var _table$options$enable, _table$options$enable2;
				const firstSortDirection = column.getFirstSortDir();
				const isSorted = column.getIsSorted();
				if (!isSorted) return firstSortDirection;
				if (isSorted !== firstSortDirection && ((_table$options$enable = table.options.enableSortingRemoval) != null ? _table$options$enable : true) && (multi ? (_table$options$enable2 = table.options.enableMultiRemove) != null ? _table$options$enable2 : true : true)) return false;
				return isSorted === "desc" ? "asc" : "desc";
			};
			column.getCanSort = () => {
				var _column$columnDef$ena, _table$options$enable3;
				return ((_column$columnDef$ena = column.columnDef.enableSorting) != null ? _column$columnDef$ena : true) && ((_table$options$enable3 = table.options.enableSorting) != null ? _table$options$enable3 : true) && !!column.accessorFn;
			};
			column.getCanMultiSort = () => {
				var _ref2, _column$columnDef$ena2;
				return (_ref2 = (_column$columnDef$ena2 = column.columnDef.enableMultiSort) != null ? _column$columnDef$ena2 : table.options.enableMultiSort) != null ? _ref2 : !!column.accessorFn;
			};
			column.getIsSorted = () => {
				var _table$getState$sorti;
				const columnSort = (_table$getState$sorti = table.getState().sorting) == null ? void 0 : _table$getState$sorti.find((d) => d.id === column.id);
				return !columnSort ? false : columnSort.desc ? "desc" : "asc";
			};
			column.getSortIndex = () => {
				var _table$getState$sorti2, _table$getState$sorti3;
				return (_table$getState$sorti2 = (_table$getState$sorti3 = table.getState().sorting) == null ? void 0 : _table$getState$sorti3.findIndex((d) => d.id === column.id)) != null ? _table$getState$sorti2 : -1;
			};
			column.clearSorting = () => {
				table.setSorting((old) => old != null && old.length ? old.filter((d) => d.id !== column.id) : []);
			};
			column.getToggleSortingHandler = () => {
				const canSort = column.getCanSort();
				return (e) => {
					if (!canSort) return;
					e.persist == null || e.persist();
					column.toggleSorting == null || column.toggleSorting(void 0, column.getCanMultiSort() ? table.options.isMultiSortEvent == null ? void 0 : table.options.isMultiSortEvent(e) : false);
				};
			};
		},
		createTable: (table) => {
			table.setSorting = (updater) => table.options.onSortingChange == null ? void 0 : table.options.onSortingChange(updater);
			table.resetSorting = (defaultState) => {
				var _table$initialState$s, _table$initialState;
				table.setSorting(defaultState ? [] : (_table$initialState$s = (_table$initialState = table.initialState) == null ? void 0 : _table$initialState.sorting) != null ? _table$initialState$s : []);
			};
			table.getPreSortedRowModel = () => table.getGroupedRowModel();
			table.getSortedRowModel = () => {
				if (!table._getSortedRowModel && table.options.getSortedRowModel) table._getSortedRowModel = table.options.getSortedRowModel(table);
				if (table.options.manualSorting || !table._getSortedRowModel) return table.getPreSortedRowModel();
				return table._getSortedRowModel();
			};
		}
	},
	ColumnGrouping,
	RowExpanding,
	RowPagination,
	RowPinning,
	RowSelection,
	ColumnSizing
];
function createTable(options) {
	var _options$_features, _options$initialState;
	const _features = [...builtInFeatures, ...(_options$_features = options._features) != null ? _options$_features : []];
	let table = { _features };
	const defaultOptions = table._features.reduce((obj, feature) => {
		return Object.assign(obj, feature.getDefaultOptions == null ? void 0 : feature.getDefaultOptions(table));
	}, {});
	const mergeOptions = (options) => {
		if (table.options.mergeOptions) return table.options.mergeOptions(defaultOptions, options);
		return {
			...defaultOptions,
			...options
		};
	};
	let initialState = { ...(_options$initialState = options.initialState) != null ? _options$initialState : {} };
	table._features.forEach((feature) => {
		var _feature$getInitialSt;
		initialState = (_feature$getInitialSt = feature.getInitialState == null ? void 0 : feature.getInitialState(initialState)) != null ? _feature$getInitialSt : initialState;
	});
	const queued = [];
	let queuedTimeout = false;
	const coreInstance = {
		_features,
		options: {
			...defaultOptions,
			...options
		},
		initialState,
		_queue: (cb) => {
			queued.push(cb);
			if (!queuedTimeout) {
				queuedTimeout = true;
				Promise.resolve().then(() => {
					while (queued.length) queued.shift()();
					queuedTimeout = false;
				}).catch((error) => setTimeout(() => {
					throw error;
				}));
			}
		},
		reset: () => {
			table.setState(table.initialState);
		},
		setOptions: (updater) => {
			const newOptions = functionalUpdate(updater, table.options);
			table.options = mergeOptions(newOptions);
		},
		getState: () => {
			return table.options.state;
		},
		setState: (updater) => {
			table.options.onStateChange == null || table.options.onStateChange(updater);
		},
		_getRowId: (row, index, parent) => {
			var _table$options$getRow;
			return (_table$options$getRow = table.options.getRowId == null ? void 0 : table.options.getRowId(row, index, parent)) != null ? _table$options$getRow : `${parent ? [parent.id, index].join(".") : index}`;
		},
		getCoreRowModel: () => {
			if (!table._getCoreRowModel) table._getCoreRowModel = table.options.getCoreRowModel(table);
			return table._getCoreRowModel();
		},
		getRowModel: () => {
			return table.getPaginationRowModel();
		},
		getRow: (id, searchAll) => {
			let row = (searchAll ? table.getPrePaginationRowModel() : table.getRowModel()).rowsById[id];
			if (!row) {
				row = table.getCoreRowModel().rowsById[id];
				if (!row) throw new Error();
			}
			return row;
		},
		_getDefaultColumnDef: memo$1(() => [table.options.defaultColumn], (defaultColumn) => {
			var _defaultColumn;
			defaultColumn = (_defaultColumn = defaultColumn) != null ? _defaultColumn : {};
			return {
				header: (props) => {
					const resolvedColumnDef = props.header.column.columnDef;
					if (resolvedColumnDef.accessorKey) return resolvedColumnDef.accessorKey;
					if (resolvedColumnDef.accessorFn) return resolvedColumnDef.id;
					return null;
				},
				cell: (props) => {
					var _props$renderValue$to, _props$renderValue;
					return (_props$renderValue$to = (_props$renderValue = props.renderValue()) == null || _props$renderValue.toString == null ? void 0 : _props$renderValue.toString()) != null ? _props$renderValue$to : null;
				},
				...table._features.reduce((obj, feature) => {
					return Object.assign(obj, feature.getDefaultColumnDef == null ? void 0 : feature.getDefaultColumnDef());
				}, {}),
				...defaultColumn
			};
		}, getMemoOptions(options, "debugColumns", "_getDefaultColumnDef")),
		_getColumnDefs: () => table.options.columns,
		getAllColumns: memo$1(() => [table._getColumnDefs()], (columnDefs) => {
			const recurseColumns = function(columnDefs, parent, depth) {
				if (depth === void 0) depth = 0;
				return columnDefs.map((columnDef) => {
					const column = createColumn(table, columnDef, depth, parent);
					const groupingColumnDef = columnDef;
					column.columns = groupingColumnDef.columns ? recurseColumns(groupingColumnDef.columns, column, depth + 1) : [];
					return column;
				});
			};
			return recurseColumns(columnDefs);
		}, getMemoOptions(options, "debugColumns", "getAllColumns")),
		getAllFlatColumns: memo$1(() => [table.getAllColumns()], (allColumns) => {
			return allColumns.flatMap((column) => {
				return column.getFlatColumns();
			});
		}, getMemoOptions(options, "debugColumns", "getAllFlatColumns")),
		_getAllFlatColumnsById: memo$1(() => [table.getAllFlatColumns()], (flatColumns) => {
			return flatColumns.reduce((acc, column) => {
				acc[column.id] = column;
				return acc;
			}, {});
		}, getMemoOptions(options, "debugColumns", "getAllFlatColumnsById")),
		getAllLeafColumns: memo$1(() => [table.getAllColumns(), table._getOrderColumnsFn()], (allColumns, orderColumns) => {
			return orderColumns(allColumns.flatMap((column) => column.getLeafColumns()));
		}, getMemoOptions(options, "debugColumns", "getAllLeafColumns")),
		getColumn: (columnId) => {
			return table._getAllFlatColumnsById()[columnId];
		}
	};
	Object.assign(table, coreInstance);
	for (let index = 0; index < table._features.length; index++) {
		const feature = table._features[index];
		feature == null || feature.createTable == null || feature.createTable(table);
	}
	return table;
}
function getCoreRowModel() {
	return (table) => memo$1(() => [table.options.data], (data) => {
		const rowModel = {
			rows: [],
			flatRows: [],
			rowsById: {}
		};
		const accessRows = function(originalRows, depth, parentRow) {
			if (depth === void 0) depth = 0;
			const rows = [];
			for (let i = 0; i < originalRows.length; i++) {
				const row = createRow(table, table._getRowId(originalRows[i], i, parentRow), originalRows[i], i, depth, void 0, parentRow == null ? void 0 : parentRow.id);
				rowModel.flatRows.push(row);
				rowModel.rowsById[row.id] = row;
				rows.push(row);
				if (table.options.getSubRows) {
					var _row$originalSubRows;
					row.originalSubRows = table.options.getSubRows(originalRows[i], i);
					if ((_row$originalSubRows = row.originalSubRows) != null && _row$originalSubRows.length) row.subRows = accessRows(row.originalSubRows, depth + 1, row);
				}
			}
			return rows;
		};
		rowModel.rows = accessRows(data);
		return rowModel;
	}, getMemoOptions(table.options, "debugTable", "getRowModel", () => table._autoResetPageIndex()));
}
function getExpandedRowModel() {
	return (table) => memo$1(() => [
		table.getState().expanded,
		table.getPreExpandedRowModel(),
		table.options.paginateExpandedRows
	], (expanded, rowModel, paginateExpandedRows) => {
		if (!rowModel.rows.length || expanded !== true && !Object.keys(expanded != null ? expanded : {}).length) return rowModel;
		if (!paginateExpandedRows) return rowModel;
		return expandRows(rowModel);
	}, getMemoOptions(table.options, "debugTable", "getExpandedRowModel"));
}
function expandRows(rowModel) {
	const expandedRows = [];
	const handleRow = (row) => {
		var _row$subRows;
		expandedRows.push(row);
		if ((_row$subRows = row.subRows) != null && _row$subRows.length && row.getIsExpanded()) row.subRows.forEach(handleRow);
	};
	rowModel.rows.forEach(handleRow);
	return {
		rows: expandedRows,
		flatRows: rowModel.flatRows,
		rowsById: rowModel.rowsById
	};
}
function filterRows(rows, filterRowImpl, table) {
	if (table.options.filterFromLeafRows) return filterRowModelFromLeafs(rows, filterRowImpl, table);
	return filterRowModelFromRoot(rows, filterRowImpl, table);
}
function filterRowModelFromLeafs(rowsToFilter, filterRow, table) {
	var _table$options$maxLea;
	const newFilteredFlatRows = [];
	const newFilteredRowsById = {};
	const maxDepth = (_table$options$maxLea = table.options.maxLeafRowFilterDepth) != null ? _table$options$maxLea : 100;
	const recurseFilterRows = function(rowsToFilter, depth) {
		if (depth === void 0) depth = 0;
		const rows = [];
		for (let i = 0; i < rowsToFilter.length; i++) {
			var _row$subRows;
			let row = rowsToFilter[i];
			const newRow = createRow(table, row.id, row.original, row.index, row.depth, void 0, row.parentId);
			newRow.columnFilters = row.columnFilters;
			if ((_row$subRows = row.subRows) != null && _row$subRows.length && depth < maxDepth) {
				newRow.subRows = recurseFilterRows(row.subRows, depth + 1);
				row = newRow;
				if (filterRow(row) && !newRow.subRows.length) {
					rows.push(row);
					newFilteredRowsById[row.id] = row;
					newFilteredFlatRows.push(row);
					continue;
				}
				if (filterRow(row) || newRow.subRows.length) {
					rows.push(row);
					newFilteredRowsById[row.id] = row;
					newFilteredFlatRows.push(row);
					continue;
				}
			} else {
				row = newRow;
				if (filterRow(row)) {
					rows.push(row);
					newFilteredRowsById[row.id] = row;
					newFilteredFlatRows.push(row);
				}
			}
		}
		return rows;
	};
	return {
		rows: recurseFilterRows(rowsToFilter),
		flatRows: newFilteredFlatRows,
		rowsById: newFilteredRowsById
	};
}
function filterRowModelFromRoot(rowsToFilter, filterRow, table) {
	var _table$options$maxLea2;
	const newFilteredFlatRows = [];
	const newFilteredRowsById = {};
	const maxDepth = (_table$options$maxLea2 = table.options.maxLeafRowFilterDepth) != null ? _table$options$maxLea2 : 100;
	const recurseFilterRows = function(rowsToFilter, depth) {
		if (depth === void 0) depth = 0;
		const rows = [];
		for (let i = 0; i < rowsToFilter.length; i++) {
			let row = rowsToFilter[i];
			if (filterRow(row)) {
				var _row$subRows2;
				if ((_row$subRows2 = row.subRows) != null && _row$subRows2.length && depth < maxDepth) {
					const newRow = createRow(table, row.id, row.original, row.index, row.depth, void 0, row.parentId);
					newRow.subRows = recurseFilterRows(row.subRows, depth + 1);
					row = newRow;
				}
				rows.push(row);
				newFilteredFlatRows.push(row);
				newFilteredRowsById[row.id] = row;
			}
		}
		return rows;
	};
	return {
		rows: recurseFilterRows(rowsToFilter),
		flatRows: newFilteredFlatRows,
		rowsById: newFilteredRowsById
	};
}
function getFilteredRowModel() {
	return (table) => memo$1(() => [
		table.getPreFilteredRowModel(),
		table.getState().columnFilters,
		table.getState().globalFilter
	], (rowModel, columnFilters, globalFilter) => {
		if (!rowModel.rows.length || !(columnFilters != null && columnFilters.length) && !globalFilter) {
			for (let i = 0; i < rowModel.flatRows.length; i++) {
				rowModel.flatRows[i].columnFilters = {};
				rowModel.flatRows[i].columnFiltersMeta = {};
			}
			return rowModel;
		}
		const resolvedColumnFilters = [];
		const resolvedGlobalFilters = [];
		(columnFilters != null ? columnFilters : []).forEach((d) => {
			var _filterFn$resolveFilt;
			const column = table.getColumn(d.id);
			if (!column) return;
			const filterFn = column.getFilterFn();
			if (!filterFn) return;
			resolvedColumnFilters.push({
				id: d.id,
				filterFn,
				resolvedValue: (_filterFn$resolveFilt = filterFn.resolveFilterValue == null ? void 0 : filterFn.resolveFilterValue(d.value)) != null ? _filterFn$resolveFilt : d.value
			});
		});
		const filterableIds = (columnFilters != null ? columnFilters : []).map((d) => d.id);
		const globalFilterFn = table.getGlobalFilterFn();
		const globallyFilterableColumns = table.getAllLeafColumns().filter((column) => column.getCanGlobalFilter());
		if (globalFilter && globalFilterFn && globallyFilterableColumns.length) {
			filterableIds.push("__global__");
			globallyFilterableColumns.forEach((column) => {
				var _globalFilterFn$resol;
				resolvedGlobalFilters.push({
					id: column.id,
					filterFn: globalFilterFn,
					resolvedValue: (_globalFilterFn$resol = globalFilterFn.resolveFilterValue == null ? void 0 : globalFilterFn.resolveFilterValue(globalFilter)) != null ? _globalFilterFn$resol : globalFilter
				});
			});
		}
		let currentColumnFilter;
		let currentGlobalFilter;
		for (let j = 0; j < rowModel.flatRows.length; j++) {
			const row = rowModel.flatRows[j];
			row.columnFilters = {};
			if (resolvedColumnFilters.length) for (let i = 0; i < resolvedColumnFilters.length; i++) {
				currentColumnFilter = resolvedColumnFilters[i];
				const id = currentColumnFilter.id;
				row.columnFilters[id] = currentColumnFilter.filterFn(row, id, currentColumnFilter.resolvedValue, (filterMeta) => {
					row.columnFiltersMeta[id] = filterMeta;
				});
			}
			if (resolvedGlobalFilters.length) {
				for (let i = 0; i < resolvedGlobalFilters.length; i++) {
					currentGlobalFilter = resolvedGlobalFilters[i];
					const id = currentGlobalFilter.id;
					if (currentGlobalFilter.filterFn(row, id, currentGlobalFilter.resolvedValue, (filterMeta) => {
						row.columnFiltersMeta[id] = filterMeta;
					})) {
						row.columnFilters.__global__ = true;
						break;
					}
				}
				if (row.columnFilters.__global__ !== true) row.columnFilters.__global__ = false;
			}
		}
		const filterRowsImpl = (row) => {
			for (let i = 0; i < filterableIds.length; i++) if (row.columnFilters[filterableIds[i]] === false) return false;
			return true;
		};
		return filterRows(rowModel.rows, filterRowsImpl, table);
	}, getMemoOptions(table.options, "debugTable", "getFilteredRowModel", () => table._autoResetPageIndex()));
}
function getSortedRowModel() {
	return (table) => memo$1(() => [table.getState().sorting, table.getPreSortedRowModel()], (sorting, rowModel) => {
		if (!rowModel.rows.length || !(sorting != null && sorting.length)) return rowModel;
		const sortingState = table.getState().sorting;
		const sortedFlatRows = [];
		const availableSorting = sortingState.filter((sort) => {
			var _table$getColumn;
			return (_table$getColumn = table.getColumn(sort.id)) == null ? void 0 : _table$getColumn.getCanSort();
		});
		const columnInfoById = {};
		availableSorting.forEach((sortEntry) => {
			const column = table.getColumn(sortEntry.id);
			if (!column) return;
			columnInfoById[sortEntry.id] = {
				sortUndefined: column.columnDef.sortUndefined,
				invertSorting: column.columnDef.invertSorting,
				sortingFn: column.getSortingFn()
			};
		});
		const sortData = (rows) => {
			const sortedData = rows.map((row) => ({ ...row }));
			sortedData.sort((rowA, rowB) => {
				for (let i = 0; i < availableSorting.length; i += 1) {
					var _sortEntry$desc;
					const sortEntry = availableSorting[i];
					const columnInfo = columnInfoById[sortEntry.id];
					const sortUndefined = columnInfo.sortUndefined;
					const isDesc = (_sortEntry$desc = sortEntry == null ? void 0 : sortEntry.desc) != null ? _sortEntry$desc : false;
					let sortInt = 0;
					if (sortUndefined) {
						const aValue = rowA.getValue(sortEntry.id);
						const bValue = rowB.getValue(sortEntry.id);
						const aUndefined = aValue === void 0;
						const bUndefined = bValue === void 0;
						if (aUndefined || bUndefined) {
							if (sortUndefined === "first") return aUndefined ? -1 : 1;
							if (sortUndefined === "last") return aUndefined ? 1 : -1;
							sortInt = aUndefined && bUndefined ? 0 : aUndefined ? sortUndefined : -sortUndefined;
						}
					}
					if (sortInt === 0) sortInt = columnInfo.sortingFn(rowA, rowB, sortEntry.id);
					if (sortInt !== 0) {
						if (isDesc) sortInt *= -1;
						if (columnInfo.invertSorting) sortInt *= -1;
						return sortInt;
					}
				}
				return rowA.index - rowB.index;
			});
			sortedData.forEach((row) => {
				var _row$subRows;
				sortedFlatRows.push(row);
				if ((_row$subRows = row.subRows) != null && _row$subRows.length) row.subRows = sortData(row.subRows);
			});
			return sortedData;
		};
		return {
			rows: sortData(rowModel.rows),
			flatRows: sortedFlatRows,
			rowsById: rowModel.rowsById
		};
	}, getMemoOptions(table.options, "debugTable", "getSortedRowModel", () => table._autoResetPageIndex()));
}
// src/sections/table/model.ts
var TEXTUAL = /* @__PURE__ */ new Set([
	"text",
	"code",
	"symbol",
	"tree",
	"shapes",
	"badge"
]);
var AUTO_OPEN = 24;
var engines = /* @__PURE__ */ new WeakMap();
var cell = (s, column, index) => s.data[column]?.[index] ?? null;
var rowCount = (s) => s.pages?.rows ?? Math.max(0, ...s.columns.map((c) => s.data[c.name]?.length ?? 0));
/** The values of a column; of a table in pages some that stand for all of them. */
var columnValues = (s, column) => (s.pages ? s.pages.profile?.[column] : s.data[column]) ?? [];
var keyOf$1 = (s, index) => s.key ? String(cell(s, s.key, index) ?? "") : String(index);
var idOf = (s, index) => s.tree ? String(cell(s, s.tree.id, index) ?? index) : String(index);
var textual = (c) => TEXTUAL.has(c.show ?? "number");
/** A text without abbreviation: of a column that has a longer form in another column, that form. */
var wholeText = (s, c, index) => String(c.full && cell(s, c.full, index) || (cell(s, c.name, index) ?? ""));
/** The order a table is in: the reader's, else the section's. */
function sortOf(s, state) {
	if (state.sort && s.columns.some((c) => c.name === state.sort.column)) return state.sort;
	return s.sort ? {
		column: s.sort.column,
		descending: s.sort.descending ?? true
	} : null;
}
function filterOf(s, state, find, picked) {
	return {
		needle: find.trim().toLowerCase(),
		keep: Object.entries(state.keep).filter(([column, values]) => values.length && s.data[column]),
		ranges: Object.entries(state.ranges).filter(([column]) => s.data[column]),
		picked
	};
}
var active = (f) => f.needle !== "" || f.keep.length > 0 || f.ranges.length > 0 || f.picked !== null;
/** Is the number inside? An unknown one never is. */
var within$1 = (value, { above, below }) => typeof value === "number" && (above === null || value > above) && (below === null || value < below);
var passesAll = (s, engine, index, f) => matches(s, engine, index, f.needle) && f.keep.every(([c, values]) => values.includes(String(cell(s, c, index)))) && f.ranges.every(([c, range]) => within$1(cell(s, c, index), range)) && (f.picked === null || f.picked.has(keyOf$1(s, index)));
/** Keys of the rows that pass the table's own filters; null when nothing is filtered. */
function passingKeys(s, state, find) {
	const f = filterOf(s, state, find, null);
	if (!active(f)) return null;
	const paged = pagedOf(s);
	if (paged) {
		const { order, waiting } = paged.orderOf(choiceOf(s, state, f), "points");
		return waiting ? null : new Set(Object.values(order.passing).flat());
	}
	const engine = engineOf(s);
	const out = /* @__PURE__ */ new Set();
	for (let i = 0; i < engine.size; i++) if (passesAll(s, engine, i, f)) out.add(keyOf$1(s, i));
	return out;
}
var PICKED = "picked";
/** Keys of the rows whose efficiency covers only a part of them. */
function partialKeys(s) {
	if (s.pages) return new Set(s.pages.partial ?? []);
	const out = /* @__PURE__ */ new Set();
	for (const c of s.columns) {
		if (c.show !== "efficiency") continue;
		for (const [at, mark] of Object.entries(s.marks?.[c.name] ?? {})) if (mark.state === "partial" && at !== "total") out.add(keyOf$1(s, Number(at)));
	}
	return out;
}
var shownBefore = /* @__PURE__ */ new WeakMap();
/** The rows to draw, in order, for a state, the text that filters, and the keys picked elsewhere. The last answer is kept: several parts of a page ask. */
function shownRows(s, state, find, picked = null) {
	if (pagedOf(s)) return pagedRows(s, state, find, picked);
	const of = JSON.stringify([
		state.sort,
		state.keep,
		state.ranges,
		state.opened,
		find
	]);
	const known = shownBefore.get(s);
	if (known?.of === of && known.picked === picked) return known.shown;
	const shown = findRows(s, state, find, picked);
	shownBefore.set(s, {
		of,
		picked,
		shown
	});
	return shown;
}
/** What a state asks of the rows on the server. */
function choiceOf(s, state, f) {
	const own = state.sort && s.columns.some((c) => c.name === state.sort.column) ? state.sort : null;
	const opened = s.tree ? active(f) ? {
		base: "d",
		ids: []
	} : state.opened : null;
	return {
		sort: own,
		needle: f.needle,
		keep: f.keep,
		ranges: f.ranges,
		picked: f.picked,
		opened
	};
}
/** What the present state asks of a table in pages: to save it. */
var choiceNow = (s, state, find, picked) => choiceOf(s, state, filterOf(s, state, find, picked));
var FLAT = {
	depth: 0,
	branch: false,
	open: false
};
var drawnBefore = /* @__PURE__ */ new WeakMap();
function pagedRows(s, state, find, picked) {
	const paged = pagedOf(s);
	const { order, waiting } = paged.orderOf(choiceNow(s, state, find, picked), "rows");
	const { choice } = order;
	const filtered = active(choice);
	let known = drawnBefore.get(order);
	if (known?.news !== paged.news.value) {
		const outside = new Set(s.last ?? []);
		const rows = new Array(order.length);
		order.places.forEach((index, at) => {
			rows[at] = {
				index,
				key: keyOf$1(s, index),
				id: idOf(s, index),
				...order.twigs.get(index) ?? FLAT,
				last: outside.has(keyOf$1(s, index))
			};
		});
		drawnBefore.set(order, known = {
			news: paged.news.value,
			rows
		});
	}
	const sums = Object.fromEntries(Object.entries(order.sums).map(([name, v]) => [name, typeof v === "number" ? v : null]));
	return {
		rows: known.rows,
		count: order.count,
		of: order.of,
		filtered,
		sums,
		order,
		waiting
	};
}
/** Requests the rows of a table in pages between two places, and a block beyond. */
function ensureRows(s, shown, from, to) {
	if (shown.order) pagedOf(s)?.ensure(shown.order, from, to + 50);
}
/** The place of the row with that key among the shown ones; -1 where it is not, or has not come. */
function placeOf$2(s, shown, key) {
	return shown.order ? pagedOf(s)?.placeOf(shown.order, key) ?? -1 : shown.rows.findIndex((r) => r.key === key);
}
var ADDED_UP = /* @__PURE__ */ new Set([
	"number",
	"bar",
	"stack",
	"share"
]);
var additive = /* @__PURE__ */ new WeakMap();
/** Those columns, and whether the rows outside the sum are in their total nevertheless. */
function addingUp(s) {
	let found = additive.get(s);
	if (!found) {
		const every = s.tree ? [] : Array.from({ length: rowCount(s) }, (_, i) => i);
		additive.set(s, found = /* @__PURE__ */ new Map());
		for (const c of s.tree || !s.total ? [] : s.columns) {
			const outside = [false, true].find((all) => addsUp(c, numbersOf(s, c.name, every, all), s.total[c.name]));
			if (outside !== void 0) found.set(c.name, outside);
		}
		const inside = every.filter((i) => !(s.last?.length && s.last.includes(keyOf$1(s, i))));
		for (const name of s.adds ?? []) if (inside.length && inside.every((i) => typeof cell(s, name, i) === "number")) found.set(name, false);
	}
	return found;
}
/** Two values other than 0 prove it. Whole numbers may each be rounded, as long as that makes no more than a hundred-thousandth. */
function addsUp(c, values, total) {
	if (!ADDED_UP.has(c.show ?? "number") || c.per || typeof total !== "number" || !values) return false;
	if ((c.unit === "ratio" || c.unit === "%") && c.show !== "share" || values.filter((v) => v !== 0).length < 2) return false;
	const [off, size] = [Math.abs(added(values) - total), Math.abs(total)];
	const rounded = values.every(Number.isInteger) ? .5 * values.length : 0;
	return off <= Math.max(1e-9 * size, 1e-12, Math.min(rounded, 1e-5 * size));
}
var added = (values) => values.reduce((a, b) => a + b, 0);
/** What is known of a column over some rows, without those outside the sum unless `all`; null where a value of it is no number. */
function numbersOf(s, column, rows, all) {
	const outside = new Set(all ? [] : s.last ?? []);
	const known = rows.filter((i) => cell(s, column, i) !== null && !(outside.size && outside.has(keyOf$1(s, i)))).map((i) => cell(s, column, i));
	return known.every((v) => typeof v === "number") ? known : null;
}
function sumsOf(s, rows) {
	return Object.fromEntries([...addingUp(s)].map(([name, all]) => {
		const values = numbersOf(s, name, rows, all);
		return [name, values?.length ? added(values) : null];
	}));
}
function findRows(s, state, find, picked) {
	const engine = engineOf(s);
	const f = filterOf(s, state, find, picked);
	const filtered = active(f);
	const sort = sortOf(s, state);
	const tests = [...new Set([...f.keep, ...f.ranges].map(([column]) => column))].map((id) => ({
		id,
		value: {
			keep: f.keep.find(([c]) => c === id)?.[1] ?? null,
			range: f.ranges.find(([c]) => c === id)?.[1] ?? null
		}
	}));
	engine.table.setOptions((before) => ({
		...before,
		state: {
			...before.state,
			sorting: sort ? [{
				id: sort.column,
				desc: sort.descending
			}] : [],
			globalFilter: f.needle,
			columnFilters: f.picked ? [...tests, {
				id: PICKED,
				value: f.picked
			}] : tests,
			expanded: filtered && s.tree ? true : openedIds(s, engine, state)
		}
	}));
	const rows = engine.table.getExpandedRowModel().rows.map((row) => drawn(s, row, false));
	const passes = engine.last.filter((index) => passesAll(s, engine, index, f));
	for (const index of passes) rows.push({
		index,
		key: keyOf$1(s, index),
		id: idOf(s, index),
		depth: 0,
		branch: false,
		open: false,
		last: true
	});
	const count = engine.table.getFilteredRowModel().flatRows.length + passes.length;
	const sums = filtered ? sumsOf(s, rows.map((r) => r.index)) : {};
	return {
		rows,
		count: Math.min(count, engine.size),
		of: engine.size + (s.truncated ?? 0),
		filtered,
		sums
	};
}
/** Ids to open for `*` on a row: it and all below; of a tree in pages, which has not come as a whole, it or the next level below. */
function below(s, shown, at) {
	const row = shown.rows[at];
	if (pagedOf(s)) {
		if (!row.open) return row.branch ? [row.id] : [];
		const ids = [];
		for (let i = at + 1; i < shown.rows.length && (shown.rows[i]?.depth ?? row.depth) > row.depth; i++) if (shown.rows[i].branch && !shown.rows[i].open) ids.push(shown.rows[i].id);
		return ids;
	}
	const { index } = row;
	const { children } = engineOf(s);
	const out = [];
	const todo = [index];
	while (todo.length) {
		const at = todo.pop();
		const inner = children.get(at) ?? [];
		if (inner.length) out.push(idOf(s, at));
		todo.push(...inner);
	}
	return out;
}
/** The tree state after opening or closing `ids`. */
function withOpen(s, state, ids, open) {
	if (pagedOf(s)) {
		const turned = new Set(state.opened.ids);
		for (const id of ids) if (!turned.delete(id)) turned.add(id);
		return {
			base: state.opened.base,
			ids: [...turned]
		};
	}
	const engine = engineOf(s);
	const base = state.opened.base;
	const toggled = new Set(state.opened.ids);
	for (const id of ids) if ((base === "a" || base === "d" && engine.defaultOpen.has(id)) === open) toggled.delete(id);
	else toggled.add(id);
	return {
		base,
		ids: [...toggled]
	};
}
/** Makes every ancestor of the row with that key visible; the ids to open, empty if it already is. */
function pathTo(s, shown, key) {
	if (!s.tree) return [];
	if (shown.order) return shown.order.paths.get(key) ?? [];
	const engine = engineOf(s);
	let at = -1;
	for (let i = 0; i < engine.size; i++) if (keyOf$1(s, i) === key) {
		at = i;
		break;
	}
	const out = [];
	while (at >= 0 && (at = engine.parents[at] ?? -1) >= 0) out.push(idOf(s, at));
	return out;
}
/** What the parent's row says in a column of a tree; null at a root. */
function parentText(s, column, index) {
	const paged = pagedOf(s);
	if (paged) return paged.aboveOf(index);
	const parent = engineOf(s).parents[index] ?? -1;
	return parent < 0 ? null : String(cell(s, column, parent) ?? "");
}
/** The values of a column with how often each stands there, most frequent first; rows outside the sum do not count. */
function valueCounts(s, column) {
	if (s.pages) return s.pages.values?.[column] ?? [];
	const counts = /* @__PURE__ */ new Map();
	const outside = new Set(s.last ?? []);
	for (const [i, value] of (s.data[column] ?? []).entries()) if (value !== null && !(outside.size && outside.has(keyOf$1(s, i)))) counts.set(String(value), (counts.get(String(value)) ?? 0) + 1);
	return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}
function drawn(s, row, last) {
	const branch = row.subRows.length > 0;
	return {
		index: row.original,
		key: keyOf$1(s, row.original),
		id: row.id,
		depth: row.depth,
		branch,
		open: branch && row.getIsExpanded(),
		last
	};
}
function openedIds(s, engine, state) {
	if (!s.tree) return {};
	const { base, ids } = state.opened;
	const toggled = new Set(ids);
	const out = {};
	for (const index of engine.children.keys()) {
		const id = idOf(s, index);
		if ((base === "a" || base === "d" && engine.defaultOpen.has(id)) !== toggled.has(id)) out[id] = true;
	}
	return out;
}
function matches(s, engine, index, needle) {
	if (!needle) return true;
	engine.words ??= Array.from({ length: engine.size }, () => "");
	const known = engine.words[index];
	const text = known || s.columns.filter(textual).map((c) => String(cell(s, c.name, index) ?? "")).join("").toLowerCase() + "";
	if (!known) engine.words[index] = text;
	return text.includes(needle) || needle.split(/\s+/).every((word) => text.includes(word));
}
function engineOf(s) {
	const found = engines.get(s);
	if (found) return found;
	const size = rowCount(s);
	const lastKeys = new Set(s.last ?? []);
	const { roots, children, parents } = family(s, size);
	const last = lastKeys.size ? roots.filter((i) => lastKeys.has(keyOf$1(s, i))) : [];
	const inside = last.length ? roots.filter((i) => !last.includes(i)) : roots;
	const engine = {
		size,
		roots: inside,
		children,
		parents,
		last,
		words: null,
		defaultOpen: autoOpen(s, inside, children),
		table: void 0
	};
	const columns = s.columns.map((c) => ({
		id: c.name,
		accessorFn: (index) => textual(c) && typeof cell(s, c.name, index) === "boolean" ? String(cell(s, c.name, index)) : cell(s, c.name, index) ?? void 0,
		sortUndefined: "last",
		sortingFn: textual(c) ? "alphanumeric" : "basic",
		filterFn: (row, id, { keep, range }) => (!keep || keep.includes(String(cell(s, id, row.original)))) && (!range || within$1(cell(s, id, row.original), range))
	}));
	columns.push({
		id: PICKED,
		accessorFn: (index) => keyOf$1(s, index),
		filterFn: (row, _id, keys) => keys.has(keyOf$1(s, row.original))
	});
	engine.table = createTable({
		data: inside,
		columns,
		getSubRows: (index) => children.get(index),
		getRowId: (index) => idOf(s, index),
		getCoreRowModel: getCoreRowModel(),
		getFilteredRowModel: getFilteredRowModel(),
		getSortedRowModel: getSortedRowModel(),
		getExpandedRowModel: getExpandedRowModel(),
		filterFromLeafRows: true,
		globalFilterFn: (row, _id, needle) => matches(s, engine, row.original, needle),
		getColumnCanGlobalFilter: (column) => column.id === s.columns[0]?.name,
		onStateChange: () => void 0,
		renderFallbackValue: null,
		state: {}
	});
	engine.table.setOptions((before) => ({
		...before,
		state: { ...engine.table.initialState }
	}));
	engines.set(s, engine);
	return engine;
}
/** Roots and children in the order of the data. A parent that is not there makes its row a root; a cycle is cut the same way. */
function family(s, size) {
	const children = /* @__PURE__ */ new Map();
	if (!s.tree) return {
		roots: Array.from({ length: size }, (_, i) => i),
		children,
		parents: []
	};
	const at = /* @__PURE__ */ new Map();
	for (let i = 0; i < size; i++) at.set(idOf(s, i), i);
	const parents = Array.from({ length: size }, (_, i) => {
		const parent = cell(s, s.tree.parent, i);
		const p = parent === null ? void 0 : at.get(String(parent));
		return p === void 0 || p === i ? -1 : p;
	});
	const safe = new Uint8Array(size);
	for (let i = 0; i < size; i++) {
		const path = [];
		const on = /* @__PURE__ */ new Set();
		let k = i;
		while (k >= 0 && !safe[k] && !on.has(k)) {
			path.push(k);
			on.add(k);
			k = parents[k];
		}
		if (k >= 0 && on.has(k)) parents[k] = -1;
		for (const p of path) safe[p] = 1;
	}
	const roots = [];
	parents.forEach((p, i) => {
		if (p < 0) roots.push(i);
		else if (children.has(p)) children.get(p).push(i);
		else children.set(p, [i]);
	});
	return {
		roots,
		children,
		parents
	};
}
/** Opens the heaviest rows first while the table stays short enough to see at once. */
function autoOpen(s, roots, children) {
	const open = /* @__PURE__ */ new Set();
	if (!s.tree) return open;
	const by = s.sort?.column ?? s.columns.find((c) => !textual(c))?.name ?? "";
	const weight = (i) => Number(cell(s, by, i) ?? 0) || 0;
	let visible = roots.length;
	const fringe = roots.filter((i) => children.has(i));
	const heaviest = Math.max(0, ...roots.map(weight));
	while (fringe.length) {
		fringe.sort((a, b) => weight(a) - weight(b));
		const at = fringe.pop();
		const inner = children.get(at);
		if (visible + inner.length > AUTO_OPEN || weight(at) < heaviest * .04) continue;
		open.add(idOf(s, at));
		visible += inner.length;
		fringe.push(...inner.filter((i) => children.has(i)));
	}
	return open;
}
// src/sections/table/columns.ts
var BAR = {
	bar: 78,
	stack: 78,
	efficiency: 64
};
var FLOOR = {
	tree: 240,
	symbol: 210,
	code: 210,
	shapes: 130,
	text: 120
};
/** px that the first column of names gets before further columns are shown. */
var READABLE = 280;
var LEAST_BAR = 30;
/** px that names in the first column keep in a table that does not fit however narrow they are: it scrolls beside them. */
var BESIDE$1 = 170;
/** part of a name's floor that is left where even headings on two lines do not fit */
var SQUEEZED = .7;
var SAMPLE = 400;
var MONO = 7.25;
var SANS = 7.1;
/** px up to which a text, such as a kind of memory, is never cut. */
var SHORT = 150;
var isShort = (l) => !l.numeric && (l.column.show ?? "text") === "text" && l.width <= SHORT;
/** Whether a column is shown whole or not at all: badges and short texts. */
var isWhole = (l) => isShort(l) || !((l.column.show ?? "text") in FLOOR);
/** px that a column of names keeps when others need room. */
var floorOf = (l) => isShort(l) ? l.width : FLOOR[l.column.show ?? "text"] ?? l.width;
var hasBar = (c) => (c.show ?? "number") in BAR;
/** The columns to draw in `room` px: the first rank and what the reader chose, then as many of the second rank as fit. */
function columnsFor(s, state, room) {
	const all = layoutOf(s);
	const lead = s.columns.find((c) => (c.rank ?? 1) < 3) ?? s.columns[0];
	const least = (c) => {
		const l = all.get(c.name);
		return l.numeric ? l.width : Math.min(l.width, c === lead ? Math.max(READABLE, floorOf(l)) : floorOf(l));
	};
	const sure = s.columns.filter((c) => c === lead || (state.columns[c.name] ?? (c.rank ?? 1) === 1));
	let used = sure.reduce((sum, c) => sum + least(c), 2 * AT_EDGE + (sortOf(s, state) ? ARROW : 0));
	const more = s.columns.filter((c) => {
		if (sure.includes(c) || state.columns[c.name] === false || (c.rank ?? 1) !== 2) return false;
		const fits = used + least(c) <= room;
		if (fits) used += least(c);
		return fits;
	});
	const sorted = sortOf(s, state)?.column;
	return s.columns.filter((c) => sure.includes(c) || more.includes(c)).map((c, i, shown) => inPlace(all.get(c.name), i === 0 || i === shown.length - 1, c.name === sorted));
}
/** px that the first and the last column have at the edge of the card, beyond the others. */
var AT_EDGE = 8;
/** px of the arrow in the heading of the column that is sorted. */
var ARROW = 15;
/** A column with the room that its place and its arrow need. */
function inPlace(l, edge, sorted) {
	const more = edge ? AT_EDGE : 0;
	const arrow = sorted ? ARROW : 0;
	if (!more && !arrow) return l;
	const head = l.head + more + arrow;
	return {
		...l,
		head,
		width: Math.max(l.width + more, Math.min(head, l.numeric ? head : 160 + more)),
		tight: Math.max(l.tight + more, headRoom(twoLines(l.heading)) - 6 + more + arrow)
	};
}
var cache = /* @__PURE__ */ new WeakMap();
/** The layout of a section's columns; computed once per section. */
function layoutOf(s) {
	const known = cache.get(s);
	if (known) return known;
	const widest = {};
	const apart = unscaledRows(s);
	for (const c of s.columns) {
		if (c.unit !== "ns" && c.unit !== "B" || c.per) continue;
		const scale = columnUnit(columnValues(s, c.name).reduce((top, v, i) => !apart.has(i) && typeof v === "number" && Math.abs(v) > top ? Math.abs(v) : top, 0), c.unit);
		if (!widest[c.unit] || scale.factor > widest[c.unit].factor) widest[c.unit] = scale;
	}
	const single = s.columns.filter((c) => c.per === "call" && c.unit === "ns");
	const calls = callScale(single.flatMap((c) => columnValues(s, c.name).filter((v) => typeof v === "number")));
	const out = new Map(s.columns.map((c) => [c.name, layoutColumn(s, c, widest[c.unit ?? ""], apart, single.includes(c) ? calls : void 0)]));
	cache.set(s, out);
	return out;
}
/** Indices of the rows that do not count for the scale of a column. */
function unscaledRows(s) {
	const keys = new Set(s.apart ?? []);
	if (!keys.size || !s.key || s.pages) return /* @__PURE__ */ new Set();
	return new Set((s.data[s.key] ?? []).flatMap((k, i) => keys.has(String(k)) ? [i] : []));
}
function layoutColumn(s, c, neighbor, apart, fixed) {
	const values = columnValues(s, c.name);
	const show = c.show ?? "number";
	const unit = c.unit ?? (show === "share" || show === "efficiency" ? "ratio" : "");
	const numbers = values.filter((v, i) => typeof v === "number" && !apart.has(i));
	const numeric = !textual(c) && (numbers.length > 0 || values.every((v) => v === null) || unit !== "");
	const total = s.total?.[c.name];
	const scale = columnScale(typeof total === "number" ? [...numbers, total] : numbers, unit, neighbor, !s.total, fixed);
	let full = 0;
	for (const v of numbers) if (v > full) full = v;
	if (s.pages) full = Math.max(full, s.pages.full?.[c.name] ?? 0);
	else if (show === "stack" && c.parts?.length) for (let i = 0; i < rowCount(s); i++) {
		if (apart.has(i)) continue;
		const sum = c.parts.reduce((a, p) => a + (Number(cell(s, p, i)) || 0), 0);
		if (sum > full) full = sum;
	}
	const heading = !scale.name || !numeric ? c.label : c.label === unit ? scale.name : `${c.label}, ${scale.name}`;
	const head = headRoom(heading.length);
	return {
		column: c,
		scale,
		heading,
		numeric,
		full,
		head,
		width: widthOf(s, c, scale, numeric, head),
		tight: widthOf(s, c, scale, numeric, headRoom(twoLines(heading)) - 6)
	};
}
var headRoom = (letters) => letters * 6.7 + 26;
/** Letters of the longer line where a heading breaks best into two. */
function twoLines(heading) {
	let best = heading.length;
	for (let i = heading.indexOf(" "); i > 0; i = heading.indexOf(" ", i + 1)) best = Math.min(best, Math.max(i, heading.length - i - 1));
	return best;
}
/** Pixels that hold the heading and nearly every value; names are cut in the middle beyond their limit. */
function widthOf(s, c, scale, numeric, head) {
	const values = columnValues(s, c.name);
	const show = c.show ?? "number";
	const mono = [
		"code",
		"symbol",
		"tree",
		"shapes"
	].includes(show);
	const stride = Math.max(1, Math.floor(values.length / SAMPLE));
	const lengths = [];
	for (let i = 0; i < values.length; i += stride) {
		const v = values[i];
		if (v === null || v === void 0) lengths.push(1);
		else if (typeof v === "number" && numeric) lengths.push(inColumn(v, scale).length);
		else lengths.push(show === "shapes" ? shapeText(String(v)).length : String(v).length);
	}
	const total = s.total?.[c.name];
	if (typeof total === "number" && numeric) lengths.push(inColumn(total, scale).length + 1);
	const label = typeof total === "string" ? total.length * SANS + 28 : 0;
	lengths.sort((a, b) => a - b);
	const typical = lengths[show === "badge" ? lengths.length - 1 : Math.ceil((lengths.length - 1) * .97)] ?? 1;
	if (numeric) return Math.max(head, typical * SANS + 20 + (BAR[show] ?? 0) + (BAR[show] ? 10 : 0));
	const extra = show === "tree" ? 110 : show === "symbol" ? 26 : show === "badge" ? 26 : 0;
	const most = show === "tree" || show === "code" || show === "symbol" ? 430 : show === "shapes" ? 280 : 320;
	return Math.max(Math.min(typical * (mono ? MONO : SANS) + 26 + extra, most), Math.min(head, 160), Math.min(label, 200), 56);
}
/**
* Pixel widths that fill `room`: names and bars give way down to their floors, then headings take two lines (`tall`) and names
* go somewhat below their floors; what is left over goes to names and bars. Where all of that is not enough the table
* scrolls beside its first column, which is then wide enough to tell names apart.
*/
function fit(columns, room) {
	const widths = columns.map((c) => c.width);
	const spare = room - widths.reduce((a, b) => a + b, 0);
	if (spare < 0) {
		const bars = (c) => Math.max(0, Math.min((BAR[c.column.show ?? "number"] ?? 0) - LEAST_BAR, c.width - c.head));
		const give = columns.map((c, i) => c.numeric ? bars(c) : Math.max(0, widths[i] - floorOf(c)));
		const most = give.reduce((a, b) => a + b, 0);
		const part = most > 0 ? Math.min(1, -spare / most) : 0;
		const given = widths.map((w, i) => w - give[i] * part);
		const over = given.reduce((a, b) => a + b, 0) - room;
		if (over <= 0) return {
			widths: given.map(Math.floor),
			tall: false
		};
		const heads = columns.map((c, i) => c.numeric ? Math.max(0, given[i] - Math.max(56, c.tight - bars(c))) : 0);
		const all = heads.reduce((a, b) => a + b, 0);
		const names = columns.map((c, i) => c.numeric ? 0 : Math.max(0, given[i] - (isWhole(c) ? given[i] : SQUEEZED * floorOf(c))));
		const rest = names.reduce((a, b) => a + b, 0);
		const least = (i) => over > all + rest && i === 0 && !columns[0].numeric ? Math.min(widths[0], BESIDE$1) : 0;
		const [head, name] = [all > 0 ? Math.min(1, over / all) : 0, rest > 0 ? Math.min(1, Math.max(0, over - all) / rest) : 0];
		return {
			widths: given.map((w, i) => Math.floor(Math.max(w - heads[i] * head - names[i] * name, least(i)))),
			tall: all > 0
		};
	}
	const want = columns.map((c, i) => (i === 0 ? 3 : hasBar(c.column) ? 2 : c.numeric ? 1 : 1.5) * widths[i]);
	const sum = want.reduce((a, b) => a + b, 0) || 1;
	return {
		widths: widths.map((w, i) => w + spare * want[i] / sum),
		tall: false
	};
}
/** `[[16, 5185, 64], [8]]` as `16×5185×64 8`; any other text stays. */
function shapeText(text) {
	const trimmed = text.trim();
	if (!/^[[(]/.test(trimmed)) return text;
	const groups = [...(/^\[\s*[[(]/.test(trimmed) || /^\(\s*[[(]/.test(trimmed) ? trimmed.slice(1, -1) : trimmed).matchAll(/[[(]([\d\s,]*)[\])]/g)].map((m) => m[1].split(",").map((d) => d.trim()).filter(Boolean).join("×")).filter(Boolean);
	return groups.length ? groups.join(" ") : text.replace(/[[\]]/g, "").trim() || "—";
}
// src/sections/timeline/place.ts
var spanText = (s) => `${Math.round(s.start)}-${Math.round(s.end)}`;
function readSpan(text) {
	const found = /^(-?\d{1,18})-(-?\d{1,18})$/.exec(text);
	const [start, end] = found ? [Number(found[1]), Number(found[2])] : [0, 0];
	return end > start ? {
		start,
		end
	} : null;
}
var eventText = (e) => `${e.path}:${Math.round(e.start)}:${Math.round(e.duration)}`;
function readEvent(text) {
	const found = /^(.+):(-?\d{1,18}):(\d{1,18})$/s.exec(text);
	return found ? {
		path: found[1],
		start: Number(found[2]),
		duration: Number(found[3])
	} : null;
}
var areaText = (a) => spanText(a) + (a.paths.length ? `:${joinList([...a.paths])}` : "");
function readArea(text) {
	const cut = text.indexOf(":");
	const span = readSpan(cut < 0 ? text : text.slice(0, cut));
	return span && {
		...span,
		paths: cut < 0 ? [] : splitList(text.slice(cut + 1))
	};
}
var readMarks = (text) => [...new Set(text.split(",").filter((t) => /^\d{1,18}$/.test(t)).map(Number))].sort((a, b) => a - b).slice(0, 50);
function readArrangement(keys) {
	const list = (name) => splitList(keys[name] ?? "");
	const layout = keys["lay"];
	return {
		pinned: list("pin"),
		hidden: list("hide"),
		toggled: list("open"),
		find: "",
		layout: layout === "worker" || layout === "compact" ? layout : ""
	};
}
var belowWorker = (path) => path.slice(path.indexOf("/") + 1);
/** The track of a path. Where one worker is shown and the path is another worker's, the same row of this one: a selection follows from rank to rank. */
function trackOf$1(tracks, path) {
	const exact = tracks.find((t) => t.path === path);
	if (exact || !path.includes("/") || tracks.filter((t) => t.parent < 0).length !== 1) return exact ?? null;
	return tracks.find((t) => t.parent >= 0 && belowWorker(t.path) === belowWorker(path)) ?? null;
}
/** Adds a path to a list, or takes it out. */
var toggled = (list, path) => list.includes(path) ? list.filter((p) => p !== path) : [...list, path];
// src/sections/timeline/align.tsx
var STEP = "step:";
var MANUAL = "manual:";
var MOST_STEPS = 200;
var WORDS$3 = {
	clock: "absolute clock",
	collective: "collectives",
	step: "a step's start",
	manual: "set by hand",
	none: "clocks not aligned"
};
/** The method in a word or two; "" of one worker. */
function methodOf(model) {
	const shape = model.shape.value;
	if (!shape || shape.alignment.length < 2) return "";
	return WORDS$3[shape.alignment[0].method] ?? shape.alignment[0].method;
}
/** Ways to align, and the offsets of each worker where they are set by hand. */
function Alignment({ model }) {
	const shape = model.shape.value;
	const ways = shape.alignments ?? [];
	if (!ways.length) return null;
	const now = model.at.al || shape.alignment[0].method;
	const kind = now.split(":")[0];
	const steps = (shape.align_steps ?? []).slice(0, MOST_STEPS);
	const choose = (value) => model.align(value === "manual" ? MANUAL + shape.alignment.map((a) => a.offset_ns).join(",") : value);
	return /* @__PURE__ */ a("div", {
		class: "tl-align",
		children: [
			/* @__PURE__ */ a("label", {
				class: "field",
				children: [
					"Clocks",
					" ",
					/* @__PURE__ */ a("select", {
						value: now.startsWith(STEP) ? now : kind,
						onChange: (e) => choose(e.currentTarget.value),
						children: [ways.map((w) => /* @__PURE__ */ a("option", {
							value: w.al,
							disabled: !!w.why_not,
							title: w.why_not || void 0,
							children: [w.label, w.why_not ? `: ${w.why_not}` : ""]
						})), steps.map((n) => /* @__PURE__ */ a("option", {
							value: `${STEP}${n}`,
							children: ["by the start of step ", n]
						}))]
					})
				]
			}),
			kind === "manual" && /* @__PURE__ */ a(Offsets, { model }, now),
			shape.alignment.every((a) => a.method !== "none") && /* @__PURE__ */ a("span", {
				class: "quiet",
				children: [shape.alignment.length, " workers on one clock"]
			})
		]
	});
}
function Offsets({ model }) {
	const { alignment } = model.shape.value;
	const [texts, setTexts] = d$2(alignment.map((a) => String(a.offset_ns / 1e3)));
	const values = texts.map((t) => Math.round(Number(t.replace(",", ".")) * 1e3));
	const wrong = values.findIndex((v) => !Number.isSafeInteger(v));
	return /* @__PURE__ */ a("form", {
		class: "tl-offsets",
		onSubmit: (e) => {
			e.preventDefault();
			if (wrong < 0) model.align(MANUAL + values.join(","));
		},
		children: [
			alignment.map((a$10, k) => /* @__PURE__ */ a("label", {
				class: "field",
				children: [
					a$10.worker || "recording",
					" ",
					/* @__PURE__ */ a("input", {
						class: "tl-input",
						type: "text",
						inputMode: "decimal",
						size: 9,
						value: texts[k],
						"aria-invalid": !Number.isSafeInteger(values[k]),
						onInput: (e) => {
							const next = texts.slice();
							next[k] = e.currentTarget.value;
							setTexts(next);
						}
					}),
					" µs"
				]
			})),
			/* @__PURE__ */ a("button", {
				type: "submit",
				class: "button",
				disabled: wrong >= 0,
				children: "Set"
			}),
			/* @__PURE__ */ a("span", {
				class: "quiet",
				children: alignment.some((a) => a.uncertainty_ns) ? `± ${human(Math.max(...alignment.map((a) => a.uncertainty_ns ?? 0)), "ns")}` : "added to the times of each worker"
			})
		]
	});
}
var GAP$1 = 5;
var GROUPS$1 = /* @__PURE__ */ new Set([
	"worker",
	"process",
	"device"
]);
var isGroup = (t) => GROUPS$1.has(t.kind);
/** Lines of a track from which on it is closed at first. */
var MOST_OPEN_LANES = 60;
var MOST_WORKERS$1 = 8;
/** Tracks by parent, in their order. */
function childrenOf(tracks) {
	const out = /* @__PURE__ */ new Map();
	for (const t of tracks) {
		const list = out.get(t.parent);
		if (list) list.push(t);
		else out.set(t.parent, [t]);
	}
	return out;
}
/** How many workers there are. */
var workersOf = (tracks) => tracks.filter((t) => t.parent < 0).length;
/** A track and all it stands in, from itself up. */
function chainOf(track, tracks) {
	const out = [];
	for (let at = track; at; at = at.parent >= 0 ? tracks[at.parent] : null) out.push(at);
	return out;
}
/** Whether a track is open before anyone touched it. More than eight workers open as summaries. */
function openAtFirst(t, workers) {
	if (isGroup(t) && workers > MOST_WORKERS$1) return false;
	if (t.kind === "worker") return true;
	return t.open && t.lanes <= MOST_OPEN_LANES;
}
var isOpen = (t, workers, toggled) => openAtFirst(t, workers) !== toggled.has(t.path);
var laneHeight = (t) => t.kind === "stream" && t.lanes === 1 ? 26 : 19;
function heightOf(t, open) {
	if (isGroup(t)) return [
		26,
		0,
		0
	];
	if (t.kind === "counter") return [
		open ? 44 : 22,
		0,
		0
	];
	if (!open) return [
		22,
		Math.min(t.lanes, 1),
		17
	];
	const lane = laneHeight(t);
	return [
		t.lanes * lane + GAP$1,
		t.lanes,
		lane
	];
}
/** The rows of some tracks. Only the one worker of a recording has no row of its own. */
function rowsOf$1(tracks, how) {
	const children = childrenOf(tracks);
	const workers = workersOf(tracks);
	const [pinned, hidden, toggled] = [
		new Set(how.pinned),
		new Set(how.hidden),
		new Set(how.toggled)
	];
	const words = how.find.toLowerCase().split(/\s+/).filter(Boolean);
	const kept = words.length ? matching$1(tracks, words) : null;
	const out = [];
	const top = [];
	const add = (t, level, list, inPin) => {
		if (!inPin && (hidden.has(t.path) || kept && !kept.has(t.track))) return;
		const below = children.get(t.track) ?? [];
		const open = kept && !inPin && isGroup(t) || isOpen(t, workers, toggled);
		const alone = t.kind === "worker" && workers === 1;
		if (!alone) {
			const [height, lanes, lane] = heightOf(t, open);
			list.push({
				track: t,
				y: 0,
				height,
				lanes,
				lane,
				level,
				open,
				group: isGroup(t),
				pinned: pinned.has(t.path)
			});
		}
		if (open || alone) {
			for (const one of below) if (inPin || !pinned.has(one.path)) add(one, alone ? level : level + 1, list, inPin);
		}
	};
	const roots = how.layout === "worker" ? acrossWorkers(children) : children.get(-1) ?? [];
	for (const t of tracks) if (pinned.has(t.path) && !above(t, tracks, pinned)) add(t, 0, top, true);
	for (const t of roots) if (!pinned.has(t.path)) add(t, 0, out, false);
	return {
		pinned: top,
		rows: out,
		pinnedHeight: place$2(top),
		height: place$2(out),
		hidden: tracks.filter((t) => hidden.has(t.path)).length
	};
}
var above = (t, tracks, among) => chainOf(t, tracks).some((one) => one !== t && among.has(one.path));
/** Devices of all workers under each other, then their processes: one row of each worker beside the others. */
function acrossWorkers(children) {
	const roots = children.get(-1) ?? [];
	const seconds = roots.map((r) => children.get(r.track) ?? []);
	const most = Math.max(0, ...seconds.map((s) => s.length));
	const out = [];
	for (let k = 0; k < most; k++) for (const list of seconds) if (list[k]) out.push(list[k]);
	return roots.length > 1 ? out : roots;
}
function matching$1(tracks, words) {
	const out = /* @__PURE__ */ new Set();
	const direct = (t) => words.every((w) => `${t.path} ${t.label} ${t.detail} ${t.kind}`.toLowerCase().includes(w));
	for (const t of tracks) {
		const parent = t.parent >= 0 ? tracks[t.parent] : null;
		if (!direct(t) && !(parent && out.has(parent.track) && direct(parent))) continue;
		for (let at = t; at && !out.has(at.track); at = at.parent >= 0 ? tracks[at.parent] : null) out.add(at.track);
	}
	return out;
}
function place$2(rows) {
	let y = 0;
	for (const row of rows) {
		row.y = y;
		y += row.height;
	}
	return y;
}
/** Rows between two heights: the first and one past the last. */
function visible(rows, from, to) {
	return [lowest(rows, (r) => r.y + r.height > from), lowest(rows, (r) => r.y >= to)];
}
function lowest(rows, passes) {
	let [low, high] = [0, rows.length];
	while (low < high) {
		const middle = low + high >> 1;
		if (passes(rows[middle])) high = middle;
		else low = middle + 1;
	}
	return low;
}
/** The lane of a row at a height inside it, -1 where there is none. */
function laneAt(row, y) {
	if (!row.lanes) return -1;
	const lane = Math.floor((y - row.y - GAP$1 / 2) / row.lane);
	return lane >= 0 && lane < row.lanes ? lane : -1;
}
var laneTop = (row, lane) => row.y + Math.floor(GAP$1 / 2) + lane * row.lane;
/** All tracks below some, with themselves. */
function withBelow(chosen, tracks) {
	const wanted = new Set(chosen);
	for (const t of tracks) if (t.parent >= 0 && wanted.has(t.parent)) wanted.add(t.track);
	return [...wanted].sort((a, b) => a - b);
}
/** Of some tracks those of a worker, by the numbers that they have where it is alone. */
function ofWorker(chosen, tracks, worker) {
	const root = tracks.find((t) => t.worker === worker && t.parent < 0)?.track ?? 0;
	return chosen.filter((t) => tracks[t].worker === worker).map((t) => t - root);
}
/** Numbers as ranges: 0-3,7. */
function rangesOf(numbers) {
	const out = [];
	for (let k = 0; k < numbers.length; k++) {
		const from = numbers[k];
		while (numbers[k + 1] === numbers[k] + 1) k++;
		out.push(numbers[k] === from ? `${from}` : `${from}-${numbers[k]}`);
	}
	return out.join(",");
}
/** Rows that can be seen, pinned ones first, each with its place on the canvas. */
function placed(shown, scroll, height) {
	const top = shown.pinnedHeight;
	const pinned = shown.pinned.filter((r) => r.y < height).map((row) => ({
		row,
		y: row.y
	}));
	const [from, to] = visible(shown.rows, scroll, scroll + Math.max(0, height - top));
	return [...pinned, ...shown.rows.slice(from, to).map((row) => ({
		row,
		y: row.y - scroll + top
	}))];
}
var MAGIC = 827608147;
var padded = (n) => n + 3 & -4;
/** Values whose lowest bytes stand first, then all second ones, and so on. */
function planes2(bytes, at, n, out) {
	for (let k = 0; k < n; k++) out[k] = bytes[at + k] | bytes[at + n + k] << 8;
}
function planes4(bytes, at, n, out) {
	for (let k = 0; k < n; k++) out[k] = bytes[at + k] | bytes[at + n + k] << 8 | bytes[at + 2 * n + k] << 16 | bytes[at + 3 * n + k] << 24;
}
/** Reads the tiles of an answer one by one, so that a caller can pause between them. Error for bytes that are no tiles. */
function* readTiles(buffer) {
	const view = new DataView(buffer);
	if (buffer.byteLength < 8 || view.getUint32(0, true) !== MAGIC) throw new Error("The server sent no tiles of a timeline.");
	const length = view.getUint32(4, true);
	if (8 + length > buffer.byteLength) throw new Error("The server sent a part of a tile.");
	const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
	if (header.v !== 1) throw new Error(`Tiles of version ${header.v}; this page reads version 1. Reload the page.`);
	const base = 8 + length;
	for (const block of header.blocks) {
		const at = {
			...block,
			z: header.z,
			from: base + block.offset
		};
		yield block.kind === "slices" ? slices(buffer, at) : block.kind === "counter" ? counter(buffer, at) : summary(buffer, at);
	}
}
function slices(buffer, b) {
	const { items: n, z, i } = b;
	const bytes = new Uint8Array(buffer);
	const wide = b.name_bytes ?? 2;
	let from = b.from;
	const column = (size) => {
		const at = from;
		from += padded(n * size);
		if (from > buffer.byteLength) throw new Error("The server sent a part of a tile.");
		return at;
	};
	const delta = new Int32Array(n);
	const extent = new Uint32Array(n);
	const event = new Uint32Array(n);
	const place = wide === 2 ? new Uint16Array(n) : new Uint32Array(n);
	const count = new Uint16Array(n);
	planes4(bytes, column(4), n, delta);
	planes4(bytes, column(4), n, extent);
	planes4(bytes, column(4), n, event);
	if (wide === 2) planes2(bytes, column(2), n, place);
	else planes4(bytes, column(4), n, place);
	planes2(bytes, column(2), n, count);
	const busyAt = column(1);
	const busy = bytes.slice(busyAt, busyAt + n);
	const [start, end, name] = [
		new Float64Array(n),
		new Float64Array(n),
		new Uint32Array(n)
	];
	const unit = 2 ** b.shift;
	const origin = i * 2 ** (z + 10);
	const names = b.names ?? [];
	for (let k = 0, t = 0, e = 0; k < n; k++) {
		t += delta[k];
		e = e + event[k] >>> 0;
		start[k] = origin + t * unit;
		end[k] = origin + (t + extent[k]) * unit;
		event[k] = e;
		name[k] = names[place[k]] ?? 0;
	}
	const lanes = b.lanes ?? [];
	const bounds = new Uint32Array(lanes.length + 1);
	for (let k = 0; k < lanes.length; k++) bounds[k + 1] = bounds[k] + lanes[k];
	return {
		kind: "slices",
		track: b.track,
		z,
		i,
		bounds,
		start,
		end,
		event,
		name,
		count,
		busy,
		complete: b.complete,
		bytes: 27 * n + 4 * bounds.length + 200
	};
}
function counter(buffer, b) {
	const { items: n, z, i } = b;
	if (b.from + n * 28 > buffer.byteLength) throw new Error("The server sent a part of a tile.");
	const at = (k) => b.from + 4 * n + 8 * n * k;
	const column = (k) => new Float64Array(buffer.slice(at(k), at(k + 1)));
	const [low, high, last] = [
		column(0),
		column(1),
		column(2)
	];
	const origin = i * 2 ** (z + 10);
	const unit = 2 ** b.shift;
	const time = Float64Array.from(new Uint32Array(buffer.slice(b.from, b.from + 4 * n)), (t) => origin + t * unit);
	return {
		kind: "counter",
		track: b.track,
		z,
		i,
		time,
		low,
		high,
		last,
		before: b.before ?? null,
		complete: b.complete,
		bytes: 32 * n + 200
	};
}
function summary(buffer, b) {
	const bytes = new Uint8Array(buffer);
	const step = padded(b.items);
	const part = (k) => bytes.slice(b.from + k * step, b.from + k * step + b.items);
	return {
		kind: "summary",
		track: b.track,
		z: b.z,
		i: b.i,
		category: part(0),
		busy: part(1),
		depth: part(2),
		complete: b.complete,
		bytes: 3 * b.items + 200
	};
}
/** How far past the recording's ends the view may go, as a part of its own length. */
var BEYOND = .02;
var lengthOf = (s) => s.end - s.start;
/** A stretch moved and cut so that it stays on the recording, with a little room at its ends. */
function inside$1(view, all) {
	const room = Math.max(lengthOf(all), 1);
	const length = Math.min(Math.max(lengthOf(view), 20), room * 1.04);
	const beyond = Math.min(length, room) * BEYOND;
	const middle = (view.start + view.end) / 2;
	const start = Math.min(Math.max(middle - length / 2, all.start - beyond), all.end + beyond - length);
	return {
		start,
		end: start + length
	};
}
/** Shorter by `factor` below 1, longer above; the time at `at` stays where it is. */
function zoomed(view, factor, at, all) {
	const length = Math.min(Math.max(lengthOf(view) * factor, 20), lengthOf(all) * 1.04);
	const scale = length / lengthOf(view);
	const start = at - (at - view.start) * scale;
	return inside$1({
		start,
		end: start + length
	}, all);
}
var moved = (view, by, all) => inside$1({
	start: view.start + by,
	end: view.end + by
}, all);
/** A stretch with room around it; one without length gets a little. */
function around(part, all, room = .08) {
	const length = Math.max(lengthOf(part), 20);
	return inside$1({
		start: part.start - length * room,
		end: part.start + length * (1 + room)
	}, all);
}
/** Level of tiles whose buckets are half a CSS pixel to one. */
var levelOf = (view, width) => Math.max(0, Math.floor(Math.log2(lengthOf(view) / Math.max(width, 1))));
/** Level at which one tile holds the whole recording. */
function topOf(span) {
	let z = 0;
	while (2 ** (z + 10) < span + 1) z++;
	return z;
}
/** First and last tile of a level that a stretch touches, within the recording. */
function tilesOf(view, z, span) {
	const width = 2 ** (z + 10);
	const last = Math.max(0, Math.floor(span / width));
	const clamp = (i) => Math.min(Math.max(i, 0), last);
	return [clamp(Math.floor(view.start / width)), clamp(Math.ceil(view.end / width) - 1)];
}
var STEPS$1 = [
	1,
	2,
	5
];
var UNITS$1 = [
	[1e9, "s"],
	[1e6, "ms"],
	[1e3, "µs"],
	[1, "ns"]
];
/** px of a letter of a tick, at most, and between two ticks. */
var LETTER$1 = 6.4;
var BETWEEN = 28;
/** Ticks at round times, at least `apart` px from each other and as far as their texts need; the first names the unit. */
function ticksOf(view, width, apart = 84) {
	const least = lengthOf(view) / Math.max(width, 1) * apart;
	let step = 1;
	for (let power = 0; power < 20 && step < least; power++) for (const s of STEPS$1) if ((step = s * 10 ** power) >= least) break;
	const first = Math.ceil(view.start / step);
	const last = Math.floor(view.end / step);
	const [factor, unit] = UNITS$1.find(([f]) => step >= f) ?? UNITS$1.at(-1);
	const needed = (group(first * step / factor).length + unit.length) * LETTER$1 + BETWEEN;
	if (apart < needed) return ticksOf(view, width, needed);
	const out = [];
	for (let k = first; k <= last && out.length < 60; k++) {
		const value = k * step / factor;
		out.push({
			time: k * step,
			text: `${group(value)}${out.length ? "" : `\u202f${unit}`}`
		});
	}
	return out;
}
function group(value) {
	const text = String(Math.abs(Math.round(value * 1e6) / 1e6)).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
	return (value < 0 ? "−" : "") + text;
}
/** Where a time stands, in px. */
var xOf = (time, view, width) => (time - view.start) / lengthOf(view) * width;
var timeOf = (x, view, width) => view.start + x / Math.max(width, 1) * lengthOf(view);
/** The zoom history: places to go back and forward to. */
var Places = class {
	back = [];
	ahead = [];
	leave(view) {
		const last = this.back.at(-1);
		if (!last || last.start !== view.start || last.end !== view.end) this.back.push(view);
		if (this.back.length > 100) this.back.shift();
		this.ahead = [];
	}
	step(direction, now) {
		const [from, to] = direction < 0 ? [this.back, this.ahead] : [this.ahead, this.back];
		const found = from.pop();
		if (!found) return null;
		to.push(now);
		return found;
	}
};
// src/sections/timeline/area.tsx
var answer = y$1({
	key: "",
	report: null,
	error: ""
});
var SETTLES$3 = 120;
/** Parts of an area's length that its begin and end are told to. */
var FINE$1 = 1e3;
/** What the report of an area is requested with; null where no row of the area belongs to the recording of the page. */
function queryOf(model, worker) {
	const area = model.area.value;
	const tracks = model.tracks.value;
	const offset = model.shape.value?.alignment[worker]?.offset_ns ?? 0;
	const mine = ofWorker(withBelow(model.tracksOf(area), tracks), tracks, worker);
	if (area.paths.length && !mine.length) return null;
	return {
		start_ns: String(Math.round(area.start - offset)),
		end_ns: String(Math.round(area.end - offset)),
		...model.at.lay && area.paths.length && { lay: model.at.lay },
		...area.paths.length && { tracks: rangesOf(mine) }
	};
}
function AreaReport({ model, where, device, cards }) {
	const area = model.area.value;
	const shape = model.shape.value;
	const worker = Math.max(0, shape?.alignment.findIndex((a) => !where?.worker || a.worker === where.worker) ?? 0);
	const query = area && shape ? queryOf(model, worker) : null;
	const key = query ? JSON.stringify([
		where,
		query,
		device
	]) : "";
	A$1(() => {
		if (!key || !query) return;
		const stop = new AbortController();
		const asked = {
			...query,
			...device && { device_limits: device }
		};
		const timer = window.setTimeout(() => {
			getReport("timeline_selection", where, asked, stop.signal).then((value) => {
				if (value.available) noteRequest(value, {
					name: "timeline_selection",
					where,
					query: asked
				});
				answer.value = {
					key,
					report: value.available ? value : null,
					error: value.available ? "" : value.because
				};
			}, (e) => {
				if (!stop.signal.aborted) answer.value = {
					key,
					report: null,
					error: e instanceof Error ? e.message : String(e)
				};
			});
		}, SETTLES$3);
		return () => {
			window.clearTimeout(timer);
			stop.abort();
		};
	}, [key]);
	const { report, error } = answer.value;
	const chosen = tableOf("groups").row;
	A$1(() => {
		const groups = report?.sections.find((s) => s.kind === "table" && s.id === "groups");
		const name = groups && chosen ? cell(groups, "name", Number(chosen)) : null;
		if (area && name !== null && answer.peek().key === key) model.finder.nameFrom(String(name), area.start);
	}, [chosen, report]);
	if (!area || !shape) return null;
	const waiting = answer.value.key !== key;
	return /* @__PURE__ */ a("div", {
		class: `tl-area ${waiting ? "waiting" : ""}`,
		"aria-busy": waiting,
		children: [/* @__PURE__ */ a("div", {
			class: "tl-area-head",
			children: [
				/* @__PURE__ */ a("h2", { children: ["Selection ", /* @__PURE__ */ a("span", {
					class: "subtitle",
					children: [
						moment(area.start, lengthOf(area) / FINE$1),
						" to ",
						moment(area.end, lengthOf(area) / FINE$1),
						", ",
						area.paths.length ? area.paths.length === 1 ? area.paths[0] : `${area.paths.length} rows` : "all rows"
					]
				})] }),
				report?.headline && /* @__PURE__ */ a("p", {
					class: "tl-area-line",
					children: /* @__PURE__ */ a(Text, { text: report.headline })
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					"data-tip": "Zoom to it (F)",
					onClick: () => model.show({
						start: area.start - lengthOf(area) * .05,
						end: area.end + lengthOf(area) * .05
					}, true),
					children: "Zoom to it"
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "ghost",
					"aria-label": "Clear the selection",
					"data-tip": "Clear (Esc)",
					onClick: () => model.choose(null),
					children: /* @__PURE__ */ a(Icon, { name: "close" })
				})
			]
		}), query === null ? /* @__PURE__ */ a("p", {
			class: "prose",
			children: "The rows of this area belong to another worker: choose it above."
		}) : error && !waiting ? /* @__PURE__ */ a("p", {
			class: "prose",
			children: error
		}) : report ? cards(report) : /* @__PURE__ */ a("p", {
			class: "quiet",
			children: "Adding up…"
		})]
	});
}
// src/sections/timeline/colors.ts
/** R, G, B of `#rrggbb`. */
function channels(hex) {
	const n = Number.parseInt(hex.slice(1), 16);
	return [
		n >> 16 & 255,
		n >> 8 & 255,
		n & 255
	];
}
/** A pixel in memory as canvases hold it on little-endian machines: alpha, blue, green, red. */
var pixel = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
function mix(a, b, share) {
	const at = (k) => Math.round(a[k] * (1 - share) + b[k] * share);
	return [
		at(0),
		at(1),
		at(2)
	];
}
/** Fills of host work: cool and quiet, so that device work stands out, in light and dark; annotations and modules in accent tint. */
var HOST_FILLS = {
	operator: ["#C9D1DC", "#3D4754"],
	call: ["#AEB9C7", "#4D5967"],
	frame: ["#E1E6EC", "#2C343E"],
	annotation: ["#CFCBF2", "#403C78"],
	module: ["#DFDCF7", "#332F5E"],
	other: ["#D5D9DE", "#39404A"],
	sync: ["#D9DEE5", "#39424D"]
};
/** A merged item is never paler than this. */
var PALEST = .35;
var LEVELS = 16;
/** fills: color of each category; background: of the rows. dark: whether words on a fill can be light. */
function paintOf$1(fills, background, dark) {
	const ground = channels(background);
	const pixels = new Uint32Array(fills.length * LEVELS);
	const [bright, faded, edge, stripe] = [
		0,
		1,
		2,
		3
	].map(() => new Uint32Array(fills.length));
	const [brightInks, fadedInks] = [[], []];
	fills.forEach((hex, c) => {
		const fill = channels(hex);
		for (let level = 0; level < LEVELS; level++) pixels[c * LEVELS + level] = pixel(mix(ground, fill, PALEST + .65 * (level / 15)));
		const lit = mix(fill, dark ? [
			255,
			255,
			255
		] : [
			0,
			0,
			0
		], .28);
		bright[c] = pixel(lit);
		brightInks.push(inkOn(hexOf(lit)));
		const pale = mix(ground, fill, .22);
		faded[c] = pixel(pale);
		fadedInks.push(mutedOn(hexOf(pale)));
		edge[c] = pixel(mix(fill, ground, .45));
		stripe[c] = pixel(channels(stripeOn(hex)));
	});
	return {
		fills,
		inks: fills.map(inkOn),
		pixels,
		bright,
		brightInks,
		fadedInks,
		faded,
		edge,
		stripe,
		background: pixel(ground)
	};
}
var shadeOf = (paint, category, busy) => paint.pixels[category * LEVELS + (busy >> 4)];
/** Relative luminance of a color (WCAG 2). */
function luminance(hex) {
	const [r, g, b] = channels(hex).map((v) => v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4);
	return .2126 * r + .7152 * g + .0722 * b;
}
var contrast = (a, b) => {
	const [x, y] = [luminance(a), luminance(b)];
	return (Math.max(x, y) + .05) / (Math.min(x, y) + .05);
};
/** Contrast of words that are to be quiet. */
var MUTED = 4.5;
var INKS = ["#000000", "#FFFFFF"];
/** The ink that reads best on a fill. */
var inkOn = (fill) => contrast(fill, INKS[0]) >= contrast(fill, INKS[1]) ? INKS[0] : INKS[1];
/** The quietest gray that still reads on a fill. */
function mutedOn(fill) {
	const [ground, ink] = [channels(fill), channels(inkOn(fill))];
	for (let share = .5; share < 1; share += .02) {
		const gray = hexOf(mix(ground, ink, share));
		if (contrast(fill, gray) >= MUTED) return gray;
	}
	return inkOn(fill);
}
var hexOf = (color) => `#${color.map((v) => v.toString(16).padStart(2, "0")).join("")}`;
/** The color of stripes on a fill: away from the ink, so that words on it read better, not worse. */
var stripeOn = (fill) => hexOf(mix(channels(fill), inkOn(fill) === INKS[0] ? [
	255,
	255,
	255
] : [
	0,
	0,
	0
], .45));
var STRIPES = [
	{
		period: 1,
		at: []
	},
	{
		period: 4,
		at: [0]
	},
	{
		period: 12,
		at: [0, 1]
	},
	{
		period: 8,
		at: [
			0,
			1,
			2,
			3
		]
	},
	{
		period: 12,
		at: [0, 3]
	},
	{
		period: 20,
		at: [0, 1]
	},
	{
		period: 6,
		at: [0, 1]
	},
	{
		period: 16,
		at: [
			0,
			3,
			6
		]
	},
	{
		period: 16,
		at: [
			0,
			1,
			2,
			3,
			4,
			5,
			6,
			7
		]
	},
	{
		period: 24,
		at: [0, 3]
	},
	{
		period: 10,
		at: [0]
	},
	{
		period: 24,
		at: [
			0,
			1,
			2,
			3
		]
	},
	{
		period: 3,
		at: [0]
	},
	{
		period: 20,
		at: [
			0,
			3,
			6,
			9
		]
	},
	{
		period: 28,
		at: [
			0,
			1,
			4,
			5
		]
	},
	{
		period: 32,
		at: [0]
	},
	{
		period: 5,
		at: [0]
	},
	{
		period: 32,
		at: [
			0,
			1,
			2,
			3
		]
	}
];
/** The stripes of a category: no two of the first eighteen are alike. */
var stripesOf = (category) => STRIPES[category % STRIPES.length];
/** A letter for each label, each another one as far as its letters allow. */
function lettersOf(labels) {
	const used = /* @__PURE__ */ new Set();
	return labels.map((label) => {
		const found = [...label.toUpperCase()].find((c) => /\p{L}/u.test(c) && !used.has(c)) ?? label[0]?.toUpperCase() ?? "";
		used.add(found);
		return found;
	});
}
// src/sections/timeline/detail.tsx
var LONG$1 = 8;
/** Of a link out of the event, into it, and out of what lies inside of it. */
var WORDS$2 = {
	launch: [
		"launches",
		"launched by",
		"inside, launches"
	],
	backward: [
		"backward pass:",
		"forward pass:",
		"inside, backward pass:"
	]
};
/** From event to event. */
var STEPS = [
	[
		"left",
		"Previous event of the lane",
		"Previous event of the lane (,)",
		(model) => void model.beside(-1)
	],
	[
		"right",
		"Next event of the lane",
		"Next event of the lane (.)",
		(model) => void model.beside(1)
	],
	[
		"up",
		"Event around it",
		"Event around it (↑)",
		(model) => model.parent()
	],
	[
		"down",
		"First event inside",
		"First event inside (↓)",
		(model) => void model.child()
	]
];
var Row = ({ label, value, unit, mark, tip }) => /* @__PURE__ */ a("div", {
	class: "fact",
	children: [/* @__PURE__ */ a("dt", { children: label }), /* @__PURE__ */ a("dd", {
		class: "value",
		"data-tip": tip,
		children: [mark === "estimated" ? "≈ " : "", typeof value === "number" ? human(value, unit ?? "") : value]
	})]
});
function Detail({ model }) {
	const found = model.detail.value;
	if (!found || !model.paneOpen.value) return null;
	const track = model.tracks.value[found.track];
	const parent = found.parents[0];
	const short = model.names.value.shortOf(found.name);
	const from = model.compared.value.length === 1 ? model.compared.value[0] : null;
	return /* @__PURE__ */ a("section", {
		class: "card tl-detail-card",
		"aria-label": `Selected event ${found.name}`,
		"data-event": found.event,
		children: [
			/* @__PURE__ */ a("div", {
				class: "card-head",
				children: [/* @__PURE__ */ a("div", {
					class: "card-title",
					children: [
						/* @__PURE__ */ a("h2", {
							class: "code",
							children: short
						}),
						short !== found.name && /* @__PURE__ */ a("p", {
							class: "code quiet tl-whole",
							"data-tip": found.name,
							children: found.name
						}),
						/* @__PURE__ */ a("span", {
							class: "subtitle",
							children: track?.path
						})
					]
				}), /* @__PURE__ */ a("div", {
					class: "card-tools",
					children: [
						STEPS.map(([icon, label, tip, act]) => /* @__PURE__ */ a("button", {
							type: "button",
							class: "ghost",
							"aria-label": label,
							"data-tip": tip,
							onClick: () => act(model),
							children: /* @__PURE__ */ a(Icon, { name: icon })
						})),
						/* @__PURE__ */ a("button", {
							type: "button",
							class: "text-button",
							"data-tip": "Its time on its row as an area, added up below (R)",
							onClick: () => model.chooseEvent(),
							children: "As an area"
						}),
						/* @__PURE__ */ a("button", {
							type: "button",
							class: "text-button",
							"aria-pressed": from !== null,
							"data-tip": "Measure from this event; on another one, the gap between both (C, Ctrl + click)",
							onClick: () => model.measure(),
							children: from ? "Measure to it" : "Measure"
						}),
						/* @__PURE__ */ a(Copy, {
							class: "text-button",
							what: "the name",
							text: () => found.name,
							children: "Copy name"
						}),
						/* @__PURE__ */ a("button", {
							type: "button",
							class: "text-button",
							"data-tip": "Zoom to it (F)",
							onClick: () => model.fit(),
							children: "Zoom to it"
						}),
						/* @__PURE__ */ a("button", {
							type: "button",
							class: "ghost",
							"aria-label": "Close details",
							"data-tip": "Close (Esc)",
							onClick: () => model.select(null),
							children: /* @__PURE__ */ a(Icon, { name: "close" })
						})
					]
				})]
			}),
			/* @__PURE__ */ a("div", {
				class: "tl-columns",
				children: [
					/* @__PURE__ */ a("dl", {
						class: "facts",
						children: [
							/* @__PURE__ */ a(Row, {
								label: "Start",
								value: moment(found.start_ns)
							}),
							/* @__PURE__ */ a(Row, {
								label: "Duration",
								value: found.duration_ns,
								unit: "ns",
								tip: moment(found.duration_ns)
							}),
							found.self_ns !== found.duration_ns && /* @__PURE__ */ a(Row, {
								label: "Self",
								value: found.self_ns,
								unit: "ns"
							}),
							parent && parent.duration_ns > 0 && /* @__PURE__ */ a(Row, {
								label: "Share of parent",
								value: found.duration_ns / parent.duration_ns,
								unit: "ratio"
							}),
							found.fields.map((f) => /* @__PURE__ */ a(Row, {
								label: f.label,
								value: f.value,
								unit: f.unit,
								mark: f.mark
							}))
						]
					}),
					/* @__PURE__ */ a(Around, {
						model,
						d: found
					}),
					/* @__PURE__ */ a(Arguments, { d: found }, `${found.track}/${found.event}`)
				]
			}),
			found.links.length > 0 && /* @__PURE__ */ a("div", {
				class: "tl-links",
				children: found.links.map((link) => /* @__PURE__ */ a(ViewLink, {
					view: linkView(link),
					class: "link",
					children: /* @__PURE__ */ a(Text, { text: link.label || "Open" })
				}))
			})
		]
	});
}
function Around({ model, d }) {
	const [all, setAll] = d$2(false);
	const inner = all ? d.parents : d.parents.slice(0, LONG$1);
	return /* @__PURE__ */ a("div", {
		class: "tl-around",
		children: [
			d.parents.length > 0 && /* @__PURE__ */ a("div", { children: [
				/* @__PURE__ */ a("h3", { children: "Inside of" }),
				d.parents.length > LONG$1 && /* @__PURE__ */ a("button", {
					type: "button",
					class: "link",
					onClick: () => setAll(!all),
					children: all ? "Only the innermost" : `${d.parents.length - LONG$1} more around these`
				}),
				/* @__PURE__ */ a("ol", {
					class: "tl-chain",
					children: [...inner].reverse().map((p) => /* @__PURE__ */ a("li", { children: [
						/* @__PURE__ */ a("button", {
							type: "button",
							class: "link code",
							onClick: () => model.go(p),
							children: p.name
						}),
						" ",
						/* @__PURE__ */ a("span", {
							class: "quiet",
							children: human(p.duration_ns, "ns")
						})
					] }))
				})
			] }),
			d.children.count > 0 && /* @__PURE__ */ a("div", { children: [
				/* @__PURE__ */ a("h3", { children: ["Directly inside ", /* @__PURE__ */ a("span", {
					class: "count",
					children: human(d.children.count, "count")
				})] }),
				/* @__PURE__ */ a("ul", {
					class: "tl-list",
					children: d.children.names.slice(0, LONG$1).map((c) => /* @__PURE__ */ a("li", { children: [
						/* @__PURE__ */ a("span", {
							class: "code",
							children: c.name
						}),
						" ",
						/* @__PURE__ */ a("span", {
							class: "quiet",
							children: [c.count > 1 ? `${c.count}× ` : "", human(c.total_ns, "ns")]
						})
					] }))
				}),
				d.children.names.length > LONG$1 && /* @__PURE__ */ a("p", {
					class: "quiet",
					children: [
						"and ",
						d.children.names.length - LONG$1,
						" more names"
					]
				})
			] }),
			d.flow_count > 0 && /* @__PURE__ */ a(Flows, {
				model,
				d
			})
		]
	});
}
function Flows({ model, d }) {
	const out = (f) => f.source.event === d.event && f.source.track === d.track;
	const into = (f) => f.target.event === d.event && f.target.track === d.track;
	const text = (f) => (WORDS$2[f.kind] ?? [
		f.kind,
		f.kind,
		f.kind
	])[out(f) ? 0 : into(f) ? 1 : 2];
	const end = (f) => into(f) ? f.source : f.target;
	return /* @__PURE__ */ a("div", { children: [
		/* @__PURE__ */ a("h3", { children: ["Links ", /* @__PURE__ */ a("span", {
			class: "count",
			children: human(d.flow_count, "count")
		})] }),
		/* @__PURE__ */ a("ul", {
			class: "tl-list",
			children: d.flows.slice(0, LONG$1).map((f) => /* @__PURE__ */ a("li", { children: [
				/* @__PURE__ */ a("span", {
					class: "quiet",
					children: text(f)
				}),
				" ",
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "link code",
					"data-tip": out(f) ? "Follow it (])" : into(f) ? "Follow it back ([)" : void 0,
					onClick: () => model.go({
						track: end(f).track,
						start_ns: end(f).start_ns,
						duration_ns: end(f).end_ns - end(f).start_ns
					}),
					children: end(f).name
				}),
				" ",
				/* @__PURE__ */ a("span", {
					class: "quiet",
					children: [
						human(Math.abs(f.latency_ns), "ns"),
						" ",
						into(f) === f.latency_ns >= 0 ? "before" : "later"
					]
				})
			] }))
		}),
		d.flow_count > LONG$1 && /* @__PURE__ */ a("p", {
			class: "quiet",
			children: [
				"and ",
				human(d.flow_count - Math.min(LONG$1, d.flows.length), "count"),
				" more, of shorter latency"
			]
		})
	] });
}
function Arguments({ d }) {
	const [all, setAll] = d$2(false);
	const entries = Object.entries(d.arguments);
	if (!entries.length) return null;
	return /* @__PURE__ */ a("div", { children: [
		/* @__PURE__ */ a("h3", { children: "Arguments" }),
		/* @__PURE__ */ a("dl", {
			class: "facts tl-arguments",
			children: (all ? entries : entries.slice(0, LONG$1)).map(([k, v]) => /* @__PURE__ */ a("div", {
				class: "fact",
				children: [/* @__PURE__ */ a("dt", { children: k }), /* @__PURE__ */ a("dd", {
					class: "code",
					children: v
				})]
			}))
		}),
		entries.length > LONG$1 && /* @__PURE__ */ a("button", {
			type: "button",
			class: "link",
			onClick: () => setAll(!all),
			children: all ? "Fewer" : `All ${entries.length}`
		})
	] });
}
// node_modules/@tanstack/virtual-core/dist/esm/lazy-measurements.js
function getMeasurementKey(item) {
	return typeof item === "object" ? item.key : item;
}
function createLazyMeasurementsView(cache, flat) {
	const count = cache.length;
	return new Proxy(cache, { get(target, prop, receiver) {
		if (typeof prop === "string") {
			const c = prop.charCodeAt(0);
			if (c >= 48 && c <= 57) {
				const i = +prop;
				if (Number.isInteger(i) && i >= 0 && i < count) {
					let v = target[i];
					if (typeof v !== "object") {
						const s = flat[i * 2];
						v = target[i] = {
							index: i,
							key: v,
							start: s,
							size: flat[i * 2 + 1],
							end: s + flat[i * 2 + 1],
							lane: 0
						};
					}
					return v;
				}
			}
			if (prop === "length") return count;
		}
		return Reflect.get(target, prop, receiver);
	} });
}
// node_modules/@tanstack/virtual-core/dist/esm/utils.js
function memo(getDeps, fn, opts) {
	let deps = opts.initialDeps ?? [];
	let result;
	let isInitial = true;
	function memoizedFunction() {
		const newDeps = getDeps();
		if (!(newDeps.length !== deps.length || newDeps.some((dep, index) => deps[index] !== dep))) return result;
		deps = newDeps;
		result = fn(...newDeps);
		if ((opts == null ? void 0 : opts.onChange) && !(isInitial && opts.skipInitialOnChange)) opts.onChange(result);
		isInitial = false;
		return result;
	}
	memoizedFunction.updateDeps = (newDeps) => {
		deps = newDeps;
	};
	return memoizedFunction;
}
function notUndefined(value, msg) {
	if (value === void 0) throw new Error(`Unexpected undefined${msg ? `: ${msg}` : ""}`);
	else return value;
}
var approxEqual = (a, b) => Math.abs(a - b) < 1.01;
var debounce = (targetWindow, fn, ms) => {
	let timeoutId;
	return Object.assign(function(...args) {
		targetWindow.clearTimeout(timeoutId);
		timeoutId = targetWindow.setTimeout(() => fn.apply(this, args), ms);
	}, { cancel: () => {
		targetWindow.clearTimeout(timeoutId);
	} });
};
// node_modules/@tanstack/virtual-core/dist/esm/scroll-classifier.js
function classifyScrollEvent({ offset, isScrolling, elementMax, holdOffset, scrollOffset, pendingWrite, clampedMaxAtWrite }) {
	var _a;
	if (isScrolling && pendingWrite === null && offset === scrollOffset) return "spurious";
	if (pendingWrite !== null && Math.abs(offset - pendingWrite.target) < 1.5) return "readBack";
	if (pendingWrite !== null && !pendingWrite.smooth && elementMax !== null && pendingWrite.target > elementMax + holdOffset + .5 && Math.abs(offset - (elementMax + holdOffset)) < 1.5) return "clampedReadBack";
	if (pendingWrite !== null && !pendingWrite.smooth && ((_a = pendingWrite.lowMaxes) == null ? void 0 : _a.some((max) => Math.abs(offset - max) < 1.5))) return "clampedReadBack";
	if (clampedMaxAtWrite !== null && Math.abs(offset - clampedMaxAtWrite) < 1.5) return "clampedEcho";
	return "external";
}
var isAnimating = (phase) => phase === "smooth" || phase === "smoothFinishing";
function externalRetiresCommand({ kind, offset, command, target }) {
	return kind !== "spurious" && kind !== "readBack" && kind !== "clampedReadBack" && (command == null ? void 0 : command.index) != null && command.phase !== "queued" && !isAnimating(command.phase) && !approxEqual(offset, command.lastTargetOffset) && !approxEqual(offset, target()) && kind !== "clampedEcho";
}
var FLING_WINDOW_MS = 40;
function flingSpedUp(samples) {
	const last = samples[samples.length - 1];
	if (last === void 0) return false;
	let j = samples.length - 2;
	while (j >= 0 && last.t - samples[j].t < FLING_WINDOW_MS) j--;
	if (j < 0) return false;
	const mid = samples[j];
	let k = j - 1;
	while (k >= 0 && mid.t - samples[k].t < FLING_WINDOW_MS) k--;
	if (k < 0) return false;
	const first = samples[k];
	const recent = (last.offset - mid.offset) / (last.t - mid.t);
	const before = (mid.offset - first.offset) / (mid.t - first.t);
	return recent * before >= 0 && Math.abs(recent) >= 2 * Math.abs(before) && Math.abs(recent) - Math.abs(before) >= .8;
}
function flingCaught(samples) {
	const last = samples[samples.length - 1];
	if (last === void 0) return false;
	let j = samples.length - 2;
	while (j >= 0 && last.t - samples[j].t < FLING_WINDOW_MS) j--;
	if (j < 0) return false;
	const from = samples[j];
	return Math.abs(last.offset - from.offset) / (last.t - from.t) >= .05;
}
// node_modules/@tanstack/virtual-core/dist/esm/ios-gesture.js
var _isIOSResult;
var isIOSWebKit = () => {
	if (_isIOSResult !== void 0) return _isIOSResult;
	if (typeof navigator === "undefined") return _isIOSResult = false;
	if (/iP(hone|od|ad)/.test(navigator.userAgent)) return _isIOSResult = true;
	const mtp = navigator.maxTouchPoints;
	return _isIOSResult = navigator.platform === "MacIntel" && mtp !== void 0 && mtp > 0;
};
var _iosMomentumOverridesWritesResult;
var iosMomentumOverridesWrites = () => {
	if (_iosMomentumOverridesWritesResult !== void 0) return _iosMomentumOverridesWritesResult;
	return _iosMomentumOverridesWritesResult = isIOSWebKit() && typeof CSS !== "undefined" && typeof CSS.supports === "function" && CSS.supports("overflow-anchor: auto");
};
var momentumOverridesWrites = () => !isIOSWebKit() || iosMomentumOverridesWrites();
var touchListenerOptions = {
	capture: true,
	passive: true
};
var IosGesture = class {
	constructor(host) {
		this.host = host;
		this._touch = null;
		this.inMotion = () => this._touch !== null && this._touch.phase !== "lateFling";
		this.dragging = () => {
			var _a;
			return ((_a = this._touch) == null ? void 0 : _a.phase) === "down" && this._touch.moved;
		};
		this.tail = () => {
			var _a;
			return ((_a = this._touch) == null ? void 0 : _a.phase) === "tail" ? this._touch.moved ? "fling" : "tap" : null;
		};
		this.onScroll = ({ isScrolling, ownReadBack, moved, external }) => {
			var _a, _b, _c;
			if (isScrolling && ((_a = this._touch) == null ? void 0 : _a.phase) === "tail") this._openTail(this._touch.moved || !ownReadBack, false);
			else if (((_b = this._touch) == null ? void 0 : _b.phase) === "lateFling") {
				if (this.host.now() > this._touch.until) this._touch = null;
				else if (external && isScrolling && moved) this._openTail(true, false);
			}
			if (!ownReadBack && isScrolling && moved && ((_c = this._touch) == null ? void 0 : _c.phase) === "down") {
				this._touch.moved = true;
				return true;
			}
			return false;
		};
		this.touchStart = () => {
			this.end();
			this._touch = {
				phase: "down",
				moved: false
			};
		};
		this.touchEnd = () => {
			var _a;
			const moved = ((_a = this._touch) == null ? void 0 : _a.phase) === "down" && this._touch.moved;
			this.end();
			this._openTail(moved, moved);
		};
		this.end = () => {
			var _a;
			const win = this.host.getWindow();
			if (((_a = this._touch) == null ? void 0 : _a.phase) === "tail" && win != null) win.clearTimeout(this._touch.timerId);
			this._touch = null;
		};
		this.listen = (target) => {
			const onTouchStart = () => this.touchStart();
			const onTouchEnd = () => this.touchEnd();
			target.addEventListener("touchstart", onTouchStart, touchListenerOptions);
			target.addEventListener("touchend", onTouchEnd, touchListenerOptions);
			target.addEventListener("touchcancel", onTouchEnd, touchListenerOptions);
			return () => {
				target.removeEventListener("touchstart", onTouchStart, touchListenerOptions);
				target.removeEventListener("touchend", onTouchEnd, touchListenerOptions);
				target.removeEventListener("touchcancel", onTouchEnd, touchListenerOptions);
				this.end();
			};
		};
		this._openTail = (moved, awaitingFling) => {
			const win = this.host.getWindow();
			if (win == null) return;
			this.end();
			const tail = {
				phase: "tail",
				moved,
				awaitingFling,
				timerId: win.setTimeout(() => {
					if (this.host.tailStillMoving()) {
						this._openTail(tail.moved, tail.awaitingFling);
						return;
					}
					this._touch = tail.awaitingFling ? {
						phase: "lateFling",
						until: this.host.now() + 1e3
					} : null;
					this.host.onTailClosed();
				}, 150)
			};
			this._touch = tail;
		};
	}
	get touch() {
		return this._touch;
	}
};
// node_modules/@tanstack/virtual-core/dist/esm/index.js
var getRect = (element) => {
	const { clientWidth, clientHeight } = element;
	return {
		width: clientWidth,
		height: clientHeight
	};
};
var createFrameQueue = (targetWindow) => {
	const ids = /* @__PURE__ */ new Set();
	return {
		schedule: (fn) => {
			const id = targetWindow.requestAnimationFrame(() => {
				ids.delete(id);
				fn();
			});
			ids.add(id);
		},
		cancel: () => {
			ids.forEach((id) => targetWindow.cancelAnimationFrame(id));
			ids.clear();
		}
	};
};
var defaultKeyExtractor = (index) => index;
var defaultRangeExtractor = (range) => {
	const overscan = range.overscan * Math.max(range.lanes ?? 1, 1);
	const start = Math.max(range.startIndex - overscan, 0);
	const len = Math.min(range.endIndex + overscan, range.count - 1) - start + 1;
	const arr = new Array(len);
	for (let i = 0; i < len; i++) arr[i] = start + i;
	return arr;
};
var observeElementRect = (instance, cb) => {
	const element = instance.scrollElement;
	if (!element) return;
	const targetWindow = instance.targetWindow;
	if (!targetWindow) return;
	const handler = (rect) => {
		const { width, height } = rect;
		cb({
			width: Math.round(width),
			height: Math.round(height)
		});
	};
	handler(getRect(element));
	if (!targetWindow.ResizeObserver) return () => {};
	const frames = createFrameQueue(targetWindow);
	const observer = new targetWindow.ResizeObserver(() => {
		const run = () => {
			handler(getRect(element));
		};
		instance.options.useAnimationFrameWithResizeObserver ? frames.schedule(run) : run();
	});
	observer.observe(element, { box: "content-box" });
	return () => {
		observer.unobserve(element);
		frames.cancel();
	};
};
var addEventListenerOptions = { passive: true };
var supportsScrollend = typeof window == "undefined" ? true : "onscrollend" in window;
var observeOffset = (instance, cb, readOffset) => {
	const element = instance.scrollElement;
	if (!element) return;
	const targetWindow = instance.targetWindow;
	if (!targetWindow) return;
	const registerScrollendEvent = instance.options.useScrollendEvent && supportsScrollend;
	let offset = 0;
	const fallback = registerScrollendEvent ? null : debounce(targetWindow, () => cb(readOffset(element), false), instance.options.isScrollingResetDelay);
	const createHandler = (isScrolling) => () => {
		offset = readOffset(element);
		fallback?.();
		cb(offset, isScrolling);
	};
	const handler = createHandler(true);
	const endHandler = createHandler(false);
	element.addEventListener("scroll", handler, addEventListenerOptions);
	if (registerScrollendEvent) element.addEventListener("scrollend", endHandler, addEventListenerOptions);
	return () => {
		element.removeEventListener("scroll", handler);
		if (registerScrollendEvent) element.removeEventListener("scrollend", endHandler);
		fallback?.cancel();
	};
};
var observeElementOffset = (instance, cb) => observeOffset(instance, cb, (el) => {
	const { horizontal, isRtl } = instance.options;
	return horizontal ? el.scrollLeft * (isRtl && -1 || 1) : el.scrollTop;
});
var measureElement = (element, entry, instance) => {
	if (instance.options.useCachedMeasurements) {
		const index = instance.indexFromElement(element);
		const key = instance.options.getItemKey(index);
		return instance.itemSizeCache.get(key) ?? instance.options.estimateSize(index);
	}
	if (entry == null ? void 0 : entry.borderBoxSize) {
		const box = entry.borderBoxSize[0];
		if (box) return Math.round(box[instance.options.horizontal ? "inlineSize" : "blockSize"]);
	}
	if (!entry) {
		const index = instance.indexFromElement(element);
		const key = instance.options.getItemKey(index);
		const cachedSize = instance.itemSizeCache.get(key);
		if (cachedSize !== void 0) return cachedSize;
	}
	return element[instance.options.horizontal ? "offsetWidth" : "offsetHeight"];
};
var scrollWithAdjustments = (offset, { adjustments = 0, behavior }, instance) => {
	var _a;
	const { scrollElement, options } = instance;
	const adjustedOffset = offset + adjustments;
	const isRtlElement = options.horizontal && options.isRtl && scrollElement !== null && "ownerDocument" in scrollElement;
	(_a = scrollElement == null ? void 0 : scrollElement.scrollTo) == null || _a.call(scrollElement, {
		[options.horizontal ? "left" : "top"]: isRtlElement ? -adjustedOffset : adjustedOffset,
		behavior
	});
};
var elementScroll = scrollWithAdjustments;
var initialScrollPhase = (behavior, atTarget) => behavior === "smooth" ? atTarget ? "smoothLanded" : "smooth" : "instant";
var isSmoothScroll = (state) => (state == null ? void 0 : state.phase) === "smooth" || (state == null ? void 0 : state.phase) === "smoothLanded";
function isAppendWithTrim(prevCount, nextCount, getPreviousKey, getNextKey) {
	if (nextCount === 0) return false;
	const firstKey = getNextKey(0);
	const removedKeys = /* @__PURE__ */ new Set();
	let removedCount = 0;
	while (removedCount < prevCount) {
		const key = getPreviousKey(removedCount);
		if (key === firstKey) break;
		removedKeys.add(key);
		removedCount++;
	}
	const retainedCount = prevCount - removedCount;
	if (retainedCount === 0 || retainedCount >= nextCount) return false;
	for (let i = 0; i < retainedCount; i++) if (getNextKey(i) !== getPreviousKey(removedCount + i)) return false;
	for (let i = retainedCount; i < nextCount; i++) if (removedKeys.has(getNextKey(i))) return false;
	return true;
}
var Virtualizer = class {
	constructor(opts) {
		this.unsubs = [];
		this.scrollElement = null;
		this.targetWindow = null;
		this.isScrolling = false;
		this.scrollState = null;
		this.measurementsCache = [];
		this._singleLaneMeasurements = null;
		this.itemSizeCache = /* @__PURE__ */ new Map();
		this.itemSizeCacheVersion = 0;
		this.laneAssignments = /* @__PURE__ */ new Map();
		this.pendingMin = null;
		this.prevLanes = void 0;
		this.lanesChangedFlag = false;
		this.lanesSettling = false;
		this.pendingScrollAnchor = null;
		this.scrollRect = null;
		this.scrollOffset = null;
		this.scrollDirection = null;
		this._holdOffset = 0;
		this._reportedOverscroll = false;
		this._iosGesture = new IosGesture({
			getWindow: () => this.targetWindow,
			now: () => this.now(),
			tailStillMoving: () => {
				const state = this.scrollState;
				if ((state == null ? void 0 : state.phase) !== "queued" || this.pendingWrite !== null) return false;
				const now = this._readElementOffset();
				if (now === null || this._lastElementOffset === null || Math.abs(now - this._lastElementOffset) < 1) return false;
				this._lastElementOffset = now;
				state.samples = [...state.samples ?? [], {
					t: this.now(),
					offset: now
				}];
				return true;
			},
			onTailClosed: () => {
				const state = this.scrollState;
				if ((state == null ? void 0 : state.phase) === "queued" && flingCaught(state.samples ?? [])) this.scrollState = null;
				this._flushHoldIfReady(true);
				this._writeAwaitingCommand();
				this._retryClampedAdjustment();
			}
		});
		this._lastElementOffset = null;
		this.pendingWrite = null;
		this._clampedAdjustment = null;
		this.elementsCache = /* @__PURE__ */ new Map();
		this._resizeBatch = null;
		this.now = () => {
			var _a, _b, _c;
			return ((_c = (_b = (_a = this.targetWindow) == null ? void 0 : _a.performance) == null ? void 0 : _b.now) == null ? void 0 : _c.call(_b)) ?? Date.now();
		};
		this.observer = /* @__PURE__ */ (() => {
			let _ro = null;
			let _frames = null;
			let delivering = false;
			let observeQueued = false;
			const pendingObservations = /* @__PURE__ */ new Set();
			const get = () => {
				if (_ro) return _ro;
				const targetWindow = this.targetWindow;
				if (!targetWindow || !targetWindow.ResizeObserver) return null;
				const frames = _frames = createFrameQueue(targetWindow);
				return _ro = new targetWindow.ResizeObserver((entries) => {
					const run = () => {
						const batch = { sync: false };
						this._resizeBatch = batch;
						try {
							entries.forEach(measureEntry);
						} finally {
							this._resizeBatch = null;
							if (batch.notify) {
								this.notify(batch.sync);
								this._noteClampMax();
								this._flushHoldIfReady(true);
								this._retryClampedAdjustment();
								this.measureElement(null);
							}
						}
					};
					if (this.options.useAnimationFrameWithResizeObserver) frames.schedule(run);
					else {
						delivering = true;
						try {
							run();
						} finally {
							delivering = false;
						}
					}
				});
			};
			const measureEntry = (entry) => {
				const node = entry.target;
				const index = this.indexFromElement(node);
				if (!node.isConnected) {
					this.observer.unobserve(node);
					for (const [cacheKey, cachedNode] of this.elementsCache) if (cachedNode === node) {
						this.elementsCache.delete(cacheKey);
						break;
					}
					return;
				}
				if (!this.isIndexInRange(index)) return;
				if (this.shouldMeasureDuringScroll(index)) this.resizeItem(index, this.options.measureElement(node, entry, this));
			};
			return {
				disconnect: () => {
					var _a;
					(_a = get()) == null || _a.disconnect();
					_frames?.cancel();
					pendingObservations.clear();
					observeQueued = false;
					_ro = null;
					_frames = null;
				},
				observe: (target) => {
					const observer = get();
					if (!observer) return;
					if (!delivering) {
						observer.observe(target, { box: "border-box" });
						return;
					}
					pendingObservations.add(target);
					if (!observeQueued) {
						observeQueued = true;
						_frames?.schedule(() => {
							observeQueued = false;
							pendingObservations.forEach((node) => {
								if (node.isConnected) _ro?.observe(node, { box: "border-box" });
							});
							pendingObservations.clear();
						});
					}
				},
				unobserve: (target) => {
					var _a;
					pendingObservations.delete(target);
					(_a = get()) == null || _a.unobserve(target);
				}
			};
		})();
		this.range = null;
		this.setOptions = (opts2) => {
			var _a;
			const merged = {
				debug: false,
				initialOffset: 0,
				overscan: 1,
				paddingStart: 0,
				paddingEnd: 0,
				scrollPaddingStart: 0,
				scrollPaddingEnd: 0,
				horizontal: false,
				getItemKey: defaultKeyExtractor,
				rangeExtractor: defaultRangeExtractor,
				onChange: () => {},
				measureElement,
				initialRect: {
					width: 0,
					height: 0
				},
				scrollMargin: 0,
				gap: 0,
				indexAttribute: "data-index",
				initialMeasurementsCache: [],
				lanes: 1,
				anchorTo: "start",
				followOnAppend: false,
				scrollEndThreshold: 1,
				isScrollingResetDelay: 150,
				enabled: true,
				isRtl: false,
				useScrollendEvent: false,
				useAnimationFrameWithResizeObserver: false,
				laneAssignmentMode: "estimate",
				useCachedMeasurements: false
			};
			for (const key in opts2) {
				const v = opts2[key];
				if (v !== void 0) merged[key] = v;
			}
			const prevOptions = this.options;
			let anchor = null;
			let followOnAppend = null;
			let edgeKeysChanged = false;
			if (prevOptions !== void 0 && prevOptions.enabled && merged.enabled && merged.anchorTo === "end" && this.scrollElement !== null) {
				const prevCount = prevOptions.count;
				const nextCount = merged.count;
				const measurements = this.getMeasurements();
				const previousItems = ((_a = this._singleLaneMeasurements) == null ? void 0 : _a.items) ?? measurements;
				const getPreviousKey = (index) => getMeasurementKey(previousItems[index]);
				const prevFirstKey = prevCount > 0 ? getPreviousKey(0) : null;
				const prevLastKey = prevCount > 0 ? getPreviousKey(prevCount - 1) : null;
				if (nextCount !== prevCount || prevCount > 0 && nextCount > 0 && (merged.getItemKey(0) !== prevFirstKey || merged.getItemKey(nextCount - 1) !== prevLastKey)) {
					edgeKeysChanged = true;
					const item = prevCount > 0 ? this.getVirtualItemForOffset(this.getScrollOffset()) ?? measurements[0] : null;
					if (item) anchor = [item.key, this.getScrollOffset() - item.start];
					const behavior = merged.followOnAppend === true ? "auto" : merged.followOnAppend || null;
					if (behavior && nextCount > 0 && this.isAtEnd(prevOptions.scrollEndThreshold) && (prevCount === 0 || merged.getItemKey(nextCount - 1) !== prevLastKey)) {
						if (nextCount > prevCount || isAppendWithTrim(prevCount, nextCount, getPreviousKey, merged.getItemKey)) followOnAppend = behavior;
					}
				}
			}
			this.options = merged;
			if (edgeKeysChanged) {
				this.pendingMin = 0;
				this.itemSizeCacheVersion++;
			}
			let anchorDelta = null;
			if (anchor && this.scrollOffset !== null && !this._awaitingCommandReadBack()) {
				const [anchorKey, anchorOffset] = anchor;
				const newMeasurements = this.getMeasurements();
				const { count, getItemKey } = this.options;
				let idx = 0;
				while (idx < count && getItemKey(idx) !== anchorKey) idx++;
				if (idx < count) {
					const anchorItem = newMeasurements[idx];
					if (anchorItem) {
						const newOffset = Math.max(0, anchorItem.start + anchorOffset);
						if (!followOnAppend && newOffset !== this.scrollOffset) {
							anchorDelta = newOffset - this.scrollOffset;
							this.scrollOffset = newOffset;
						}
					}
				}
			}
			if (followOnAppend) this.pendingScrollAnchor = {
				kind: "follow",
				behavior: followOnAppend
			};
			else if (anchorDelta !== null) {
				if (this._canWriteScroll()) this.pendingScrollAnchor = {
					kind: "anchor",
					delta: anchorDelta
				};
				else {
					this._holdOffset += anchorDelta;
					this._followOffsetTarget(anchorDelta);
				}
			}
		};
		this.notify = (sync) => {
			var _a, _b;
			(_b = (_a = this.options).onChange) == null || _b.call(_a, this, sync);
		};
		this.maybeNotify = memo(() => {
			this.calculateRange();
			return [
				this.isScrolling,
				this.range ? this.range.startIndex : null,
				this.range ? this.range.endIndex : null
			];
		}, (isScrolling) => {
			this.notify(isScrolling);
		}, {
			key: false,
			debug: () => this.options.debug,
			initialDeps: [
				this.isScrolling,
				this.range ? this.range.startIndex : null,
				this.range ? this.range.endIndex : null
			]
		});
		this.cleanup = () => {
			var _a;
			this.unsubs.filter(Boolean).forEach((d) => d());
			this.unsubs = [];
			this.observer.disconnect();
			if (this.rafId != null && this.targetWindow) {
				this.targetWindow.cancelAnimationFrame(this.rafId);
				this.rafId = null;
			}
			this.scrollState = null;
			(_a = this._momentumStop) == null || _a.restore();
			this._momentumStop = null;
			this.isScrolling = false;
			this.scrollDirection = null;
			this._holdOffset = 0;
			this._reportedOverscroll = false;
			this._clampedAdjustment = null;
			this.pendingWrite = null;
			this.scrollElement = null;
			this.targetWindow = null;
		};
		this._didMount = () => {
			return () => {
				this.cleanup();
			};
		};
		this._willUpdate = () => {
			var _a;
			const scrollElement = this.options.enabled ? this.options.getScrollElement() : null;
			if (this.scrollElement !== scrollElement) {
				this.cleanup();
				if (!scrollElement) {
					this.maybeNotify();
					return;
				}
				this.scrollElement = scrollElement;
				if (this.scrollElement && "ownerDocument" in this.scrollElement) this.targetWindow = this.scrollElement.ownerDocument.defaultView;
				else this.targetWindow = ((_a = this.scrollElement) == null ? void 0 : _a.window) ?? null;
				this.elementsCache.forEach((cached) => {
					this.observer.observe(cached);
				});
				this.unsubs.push(this.options.observeElementRect(this, (rect) => {
					this.scrollRect = rect;
					this.maybeNotify();
				}));
				this.unsubs.push(this.options.observeElementOffset(this, (offset, isScrolling) => {
					var _a2, _b, _c, _d;
					const elementMax = isScrolling ? this._elementMaxScrollOffset() : null;
					const wasOverscrolled = this._reportedOverscroll;
					this._reportedOverscroll = offset < 0 || elementMax !== null && offset > elementMax + 1;
					const elementOffset = offset;
					this._lastElementOffset = elementOffset;
					offset = this._toLayoutOffset(offset);
					const kind = this._classifyScrollEvent(offset, isScrolling, elementMax);
					if (kind === "spurious") return;
					if (kind === "readBack") offset = this.pendingWrite.target;
					else if (kind === "clampedReadBack" && ((_a2 = this.scrollState) == null ? void 0 : _a2.index) != null && offset < this.getMaxScrollOffset() - 1.5) this.scrollState.lastTargetOffset = offset;
					else if (externalRetiresCommand({
						kind,
						offset,
						command: this.scrollState,
						target: () => this.getScrollStateTarget(this.scrollState)
					})) this.scrollState = null;
					this.pendingWrite = null;
					if (this._clampedAdjustment !== null && Math.abs(offset - this._clampedAdjustment.maxAtWrite) >= 1.5) this._clampedAdjustment = null;
					const prevOffset = this.getScrollOffset();
					const prevDirection = this.scrollDirection;
					this.scrollDirection = isScrolling ? prevOffset === offset ? this.scrollDirection : prevOffset < offset ? "forward" : "backward" : null;
					this.scrollOffset = offset;
					this.isScrolling = isScrolling;
					const queued = this.scrollState;
					if ((queued == null ? void 0 : queued.phase) === "queued" && kind === "external" && isScrolling) {
						if (wasOverscrolled || this._reportedOverscroll) queued.samples = [];
						else {
							const t = this.now();
							queued.samples = [...(queued.samples ?? []).filter((sample) => t - sample.t <= 200), {
								t,
								offset: elementOffset
							}];
							if (prevDirection !== null && this.scrollDirection !== prevDirection || flingSpedUp(queued.samples)) this.scrollState = null;
						}
					}
					if (this._iosGesture.onScroll({
						isScrolling,
						ownReadBack: kind === "readBack",
						moved: offset !== prevOffset,
						external: kind === "external" && ((_b = this.scrollState) == null ? void 0 : _b.phase) !== "smooth" && ((_c = this.scrollState) == null ? void 0 : _c.phase) !== "smoothFinishing"
					}) && ((_d = this.scrollState) == null ? void 0 : _d.phase) === "queued") this.scrollState = null;
					this._flushHoldIfReady(true);
					if (this.scrollState) this.scheduleScrollReconcile();
					this.maybeNotify();
				}));
				if ("addEventListener" in this.scrollElement) this.unsubs.push(this._iosGesture.listen(this.scrollElement));
				this._scrollToOffset(this.getScrollOffset());
			}
			this._noteClampMax();
			const anchor = this.pendingScrollAnchor;
			this.pendingScrollAnchor = null;
			if (anchor && this.scrollElement && this.options.enabled) {
				if (anchor.kind === "anchor") {
					if (!this._canWriteScroll()) {
						this._holdOffset += anchor.delta;
						this._followOffsetTarget(anchor.delta);
						this.notify(false);
					} else if (isSmoothScroll(this.scrollState) && !approxEqual(this.getScrollOffset() - anchor.delta, this.scrollState.lastTargetOffset));
					else {
						this._followOffsetTarget(anchor.delta);
						this._scrollToOffset(this.getScrollOffset());
					}
				} else this.scrollToEnd({ behavior: anchor.behavior });
			}
			this._flushHoldIfReady(false);
			this._retryClampedAdjustment();
		};
		this._classifyScrollEvent = (offset, isScrolling, elementMax) => {
			var _a;
			return classifyScrollEvent({
				offset,
				isScrolling,
				elementMax,
				holdOffset: this._holdOffset,
				scrollOffset: this.scrollOffset,
				pendingWrite: this.pendingWrite,
				clampedMaxAtWrite: ((_a = this._clampedAdjustment) == null ? void 0 : _a.maxAtWrite) ?? null
			});
		};
		this._retryClampedAdjustment = () => {
			if (this._clampedAdjustment === null || !this.scrollElement || !this.options.enabled || !this._canWriteScroll()) return;
			const { target, maxAtWrite } = this._clampedAdjustment;
			const max = this.getMaxScrollOffset();
			if (max > maxAtWrite + .5) {
				this._clampedAdjustment = target > max + .5 ? {
					target,
					maxAtWrite: max
				} : null;
				this._scrollToOffset(target);
			}
		};
		this._writeAwaitingCommand = () => {
			const state = this.scrollState;
			if (state === null || state.phase !== "queued") return;
			const { behavior } = state;
			this.getMeasurements();
			const offset = this.getScrollStateTarget(state);
			state.lastTargetOffset = offset;
			this._clampedAdjustment = null;
			state.phase = initialScrollPhase(behavior, state.index != null && approxEqual(offset, this.getScrollOffset()));
			this._scrollToOffset(offset, { behavior });
			this.scheduleScrollReconcile();
		};
		this._readElementOffset = () => {
			const el = this.scrollElement;
			if (el == null) return null;
			const { horizontal, isRtl } = this.options;
			if (typeof el.scrollTop === "number") return horizontal ? el.scrollLeft * (isRtl && -1 || 1) : el.scrollTop;
			if (typeof el.scrollY === "number") return horizontal ? el.scrollX : el.scrollY;
			return null;
		};
		this._canWriteScroll = () => !(isIOSWebKit() && this._iosGesture.inMotion()) && !this._reportedOverscroll;
		this._flushHoldIfReady = (sync) => {
			var _a;
			if (this._holdOffset === 0) return;
			if (!this.scrollElement || !this.options.enabled) return;
			if (!this._canWriteScroll()) return;
			if (((_a = this.scrollState) == null ? void 0 : _a.phase) === "smooth") return;
			this._holdOffset = 0;
			if (this.scrollOffset !== null && this.scrollOffset < 0) this.scrollOffset = 0;
			this.notify(sync);
			const target = this.getCommandWrittenOffset() ?? this.getScrollOffset();
			this._clampedAdjustment = this._clampedBy(target);
			this._scrollToOffset(target);
		};
		this.rafId = null;
		this.getSize = () => {
			if (!this.options.enabled) {
				this.scrollRect = null;
				return 0;
			}
			this.scrollRect = this.scrollRect ?? this.options.initialRect;
			return this.scrollRect[this.options.horizontal ? "width" : "height"];
		};
		this.getScrollOffset = () => {
			if (!this.options.enabled) {
				this.scrollOffset = null;
				return 0;
			}
			this.scrollOffset = this.scrollOffset ?? (typeof this.options.initialOffset === "function" ? this.options.initialOffset() : this.options.initialOffset);
			return this.scrollOffset;
		};
		this.getMeasurementOptions = memo(() => [
			this.options.count,
			this.options.paddingStart,
			this.options.scrollMargin,
			this.options.getItemKey,
			this.options.enabled,
			this.options.lanes,
			this.options.laneAssignmentMode,
			this.options.gap
		], (count, paddingStart, scrollMargin, getItemKey, enabled, lanes, laneAssignmentMode, gap) => {
			if (this.prevLanes !== void 0 && this.prevLanes !== lanes) this.lanesChangedFlag = true;
			this.prevLanes = lanes;
			this.pendingMin = null;
			return {
				count,
				paddingStart,
				scrollMargin,
				getItemKey,
				enabled,
				lanes,
				laneAssignmentMode,
				gap
			};
		}, { key: false });
		this.isIndexInRange = (index) => index >= 0 && index < this.options.count;
		this.getMeasurements = memo(() => [this.getMeasurementOptions(), this.itemSizeCacheVersion], ({ count, paddingStart, scrollMargin, getItemKey, enabled, lanes, laneAssignmentMode, gap }, _itemSizeCacheVersion) => {
			var _a;
			const itemSizeCache = this.itemSizeCache;
			if (!enabled) {
				this.measurementsCache = [];
				this._singleLaneMeasurements = null;
				this.itemSizeCache.clear();
				this.laneAssignments.clear();
				return [];
			}
			if (this.laneAssignments.size > count) {
				for (const index of this.laneAssignments.keys()) if (index >= count) this.laneAssignments.delete(index);
			}
			if (this.lanesChangedFlag) {
				this.lanesChangedFlag = false;
				this.lanesSettling = true;
				this.measurementsCache = [];
				this._singleLaneMeasurements = null;
				this.itemSizeCache.clear();
				this.laneAssignments.clear();
				this.pendingMin = null;
			}
			if (this.measurementsCache.length === 0 && !this.lanesSettling) {
				this.measurementsCache = this.options.initialMeasurementsCache;
				this.measurementsCache.forEach((item) => {
					this.itemSizeCache.set(item.key, item.size);
				});
			}
			const min = this.lanesSettling ? 0 : this.pendingMin ?? 0;
			this.pendingMin = null;
			if (this.lanesSettling && this.measurementsCache.length === count) this.lanesSettling = false;
			if (lanes === 1) {
				const need = count * 2;
				let flat = (_a = this._singleLaneMeasurements) == null ? void 0 : _a.flat;
				if (!flat || flat.length < need) {
					const next = new Float64Array(need);
					if (flat && min > 0) next.set(flat.subarray(0, min * 2));
					flat = next;
				}
				const items = min === 0 ? new Array(count) : this._singleLaneMeasurements.items.slice();
				let runningStart;
				if (min === 0) runningStart = paddingStart + scrollMargin;
				else {
					const prevIdx = min - 1;
					runningStart = flat[prevIdx * 2] + flat[prevIdx * 2 + 1] + gap;
				}
				for (let i = min; i < count; i++) {
					const key = getItemKey(i);
					items[i] = key;
					const measuredSize = itemSizeCache.get(key);
					const size = typeof measuredSize === "number" ? measuredSize : this.options.estimateSize(i);
					flat[i * 2] = runningStart;
					flat[i * 2 + 1] = size;
					runningStart += size + gap;
				}
				this._singleLaneMeasurements = {
					flat,
					items
				};
				const view = createLazyMeasurementsView(items, flat);
				this.measurementsCache = view;
				return view;
			}
			const measurements = this.measurementsCache.slice(0, min);
			const laneLastIndex = new Array(lanes).fill(void 0);
			const laneEnds = new Float64Array(lanes);
			let filledLanes = 0;
			for (let m = 0; m < min; m++) {
				const item = measurements[m];
				if (item) {
					if (laneLastIndex[item.lane] === void 0) filledLanes++;
					laneLastIndex[item.lane] = m;
					laneEnds[item.lane] = item.end;
				}
			}
			for (let i = min; i < count; i++) {
				const key = getItemKey(i);
				const cachedLane = this.laneAssignments.get(i);
				let lane;
				let start;
				const shouldCacheLane = laneAssignmentMode === "estimate" || itemSizeCache.has(key);
				if (cachedLane !== void 0 && this.options.lanes > 1) {
					lane = cachedLane;
					const prevIndex = laneLastIndex[lane];
					const prevInLane = prevIndex !== void 0 ? measurements[prevIndex] : void 0;
					start = prevInLane ? prevInLane.end + gap : paddingStart + scrollMargin;
				} else if (filledLanes === lanes) {
					let bestLane = 0;
					let bestEnd = laneEnds[0];
					let bestIdx = laneLastIndex[0];
					for (let l = 1; l < lanes; l++) {
						const e = laneEnds[l];
						if (e < bestEnd || e === bestEnd && laneLastIndex[l] < bestIdx) {
							bestLane = l;
							bestEnd = e;
							bestIdx = laneLastIndex[l];
						}
					}
					lane = bestLane;
					start = bestEnd + gap;
					if (shouldCacheLane) this.laneAssignments.set(i, lane);
				} else {
					lane = i % this.options.lanes;
					start = paddingStart + scrollMargin;
					if (shouldCacheLane) this.laneAssignments.set(i, lane);
				}
				const measuredSize = itemSizeCache.get(key);
				const size = typeof measuredSize === "number" ? measuredSize : this.options.estimateSize(i);
				const end = start + size;
				measurements[i] = {
					index: i,
					start,
					size,
					end,
					key,
					lane
				};
				if (laneLastIndex[lane] === void 0) filledLanes++;
				laneLastIndex[lane] = i;
				laneEnds[lane] = end;
			}
			this.measurementsCache = measurements;
			return measurements;
		}, {
			key: false,
			debug: () => this.options.debug
		});
		this.calculateRange = memo(() => [
			this.getMeasurements(),
			this.getSize(),
			this.getScrollOffset(),
			this.options.lanes,
			this._getLayoutTotalSize() + this.options.scrollMargin
		], (measurements, outerSize, scrollOffset, lanes, listEnd) => {
			if (measurements.length === 0 || outerSize === 0) {
				this.range = null;
				return null;
			}
			const maxScrollOffset = Math.max(listEnd - outerSize, 0);
			this.range = calculateRangeImpl(measurements, outerSize, Math.min(scrollOffset, maxScrollOffset), lanes, lanes === 1 && this._singleLaneMeasurements !== null ? this._singleLaneMeasurements.flat : null);
			return this.range;
		}, {
			key: false,
			debug: () => this.options.debug
		});
		this.getVirtualIndexes = memo(() => {
			let startIndex = null;
			let endIndex = null;
			const range = this.calculateRange();
			if (range) {
				startIndex = range.startIndex;
				endIndex = range.endIndex;
			}
			this.maybeNotify.updateDeps([
				this.isScrolling,
				startIndex,
				endIndex
			]);
			return [
				this.options.rangeExtractor,
				this.options.overscan,
				this.options.count,
				startIndex,
				endIndex,
				this.options.lanes
			];
		}, (rangeExtractor, overscan, count, startIndex, endIndex, lanes) => {
			return startIndex === null || endIndex === null ? [] : rangeExtractor({
				startIndex,
				endIndex,
				overscan,
				count,
				lanes
			});
		}, {
			key: false,
			debug: () => this.options.debug
		});
		this.indexFromElement = (node) => {
			const attributeName = this.options.indexAttribute;
			const indexStr = node.getAttribute(attributeName);
			if (!indexStr) {
				console.warn(`Missing attribute name '${attributeName}={index}' on measured element.`);
				return -1;
			}
			return parseInt(indexStr, 10);
		};
		this.shouldMeasureDuringScroll = (index) => {
			var _a;
			if (!isSmoothScroll(this.scrollState)) return true;
			const scrollIndex = this.scrollState.index ?? ((_a = this.getVirtualItemForOffset(this.scrollState.lastTargetOffset)) == null ? void 0 : _a.index);
			if (scrollIndex !== void 0 && this.range) {
				const bufferSize = Math.max(this.options.overscan, Math.ceil((this.range.endIndex - this.range.startIndex) / 2));
				const minIndex = Math.max(0, scrollIndex - bufferSize);
				const maxIndex = Math.min(this.options.count - 1, scrollIndex + bufferSize);
				return index >= minIndex && index <= maxIndex;
			}
			return true;
		};
		this.measureElement = (node) => {
			if (!node) {
				this.elementsCache.forEach((cached, key2) => {
					if (!cached.isConnected) {
						this.observer.unobserve(cached);
						this.elementsCache.delete(key2);
					}
				});
				return;
			}
			const index = this.indexFromElement(node);
			if (!this.isIndexInRange(index)) return;
			const key = this.options.getItemKey(index);
			const prevNode = this.elementsCache.get(key);
			if (prevNode !== node) {
				if (prevNode) this.observer.unobserve(prevNode);
				this.observer.observe(node);
				this.elementsCache.set(key, node);
			}
			if (node.isConnected && (!this.isScrolling || this.scrollState) && this.shouldMeasureDuringScroll(index)) this.resizeItem(index, this.options.measureElement(node, void 0, this));
		};
		this.resizeItem = (index, size) => {
			var _a, _b, _c;
			if (!this.isIndexInRange(index)) return;
			if ((_a = this._resizeBatch) == null ? void 0 : _a.sync) this.getMeasurements();
			let cachedSize;
			let itemStart;
			let key;
			const flat = (_b = this._singleLaneMeasurements) == null ? void 0 : _b.flat;
			if (this.options.lanes === 1 && flat != null) {
				key = this.options.getItemKey(index);
				itemStart = flat[index * 2];
				cachedSize = flat[index * 2 + 1];
			} else {
				const item = this.measurementsCache[index];
				if (!item) return;
				key = item.key;
				itemStart = item.start;
				cachedSize = item.size;
			}
			const itemSize = this.itemSizeCache.get(key) ?? cachedSize;
			const delta = size - itemSize;
			if (delta !== 0) {
				const wasAtEnd = this.options.anchorTo === "end" && !isSmoothScroll(this.scrollState) && this.getVirtualDistanceFromEnd() <= this.options.scrollEndThreshold;
				const prevTotalSize = wasAtEnd ? this._getLayoutTotalSize() : 0;
				const scrollOffset = this.getScrollOffset();
				const defaultShouldAdjust = !this.itemSizeCache.has(key) ? itemStart < scrollOffset : itemStart + itemSize <= scrollOffset && this.scrollDirection !== "backward";
				const shouldAdjustScroll = !isSmoothScroll(this.scrollState) && (this.shouldAdjustScrollPositionOnItemSizeChange !== void 0 ? this.shouldAdjustScrollPositionOnItemSizeChange(this.measurementsCache[index] ?? {
					index,
					key,
					start: itemStart,
					size: cachedSize,
					end: itemStart + cachedSize,
					lane: 0
				}, delta, this) : defaultShouldAdjust);
				if (this.pendingMin === null || index < this.pendingMin) this.pendingMin = index;
				this.itemSizeCache.set(key, size);
				this.itemSizeCacheVersion++;
				let adjustedSync = false;
				if (!this._awaitingCommandReadBack()) {
					if (wasAtEnd) adjustedSync = this.applyScrollAdjustment(this._getLayoutTotalSize() - prevTotalSize);
					else if (shouldAdjustScroll) adjustedSync = this.applyScrollAdjustment(delta);
				}
				if (this._resizeBatch) {
					this._resizeBatch.notify = true;
					(_c = this._resizeBatch).sync || (_c.sync = adjustedSync);
					return;
				}
				this.notify(adjustedSync);
				this._noteClampMax();
				this._flushHoldIfReady(true);
				this._retryClampedAdjustment();
			}
		};
		this.getVirtualItems = memo(() => [
			this.getVirtualIndexes(),
			this.getMeasurements(),
			this._holdOffset
		], (indexes, measurements, hold) => {
			const virtualItems = [];
			for (let k = 0, len = indexes.length; k < len; k++) {
				const measurement = measurements[indexes[k]];
				virtualItems.push(hold === 0 ? measurement : {
					...measurement,
					start: measurement.start - hold,
					end: measurement.end - hold
				});
			}
			return virtualItems;
		}, {
			key: false,
			debug: () => this.options.debug
		});
		this.getVirtualItemForOffset = (offset) => {
			var _a;
			const measurements = this.getMeasurements();
			if (measurements.length === 0) return;
			const flat = (_a = this._singleLaneMeasurements) == null ? void 0 : _a.flat;
			const useFlat = this.options.lanes === 1 && flat != null;
			return notUndefined(measurements[findNearestBinarySearch(0, measurements.length - 1, useFlat ? (i) => flat[i * 2] : (i) => notUndefined(measurements[i]).start, offset)]);
		};
		this._noteClampMax = () => {
			if (!this._awaitingCommandReadBack()) return;
			const elementMax = this._elementMaxScrollOffset();
			if (elementMax === null) return;
			const write = this.pendingWrite;
			const max = Math.max(elementMax, 0) + this._holdOffset;
			if (max >= write.target) return;
			const lowMaxes = write.lowMaxes ?? (write.lowMaxes = []);
			if (lowMaxes[lowMaxes.length - 1] !== max) lowMaxes.push(max);
		};
		this.getMaxScrollOffset = () => (this._elementMaxScrollOffset() ?? 0) + this._holdOffset;
		this._toLayoutOffset = (elementOffset) => {
			var _a;
			let offset = elementOffset + this._holdOffset;
			if (((_a = this.pendingScrollAnchor) == null ? void 0 : _a.kind) === "anchor") offset += this.pendingScrollAnchor.delta;
			return offset;
		};
		this._elementMaxScrollOffset = () => {
			const el = this.scrollElement;
			if (el === null) return null;
			if ("scrollHeight" in el) return this.options.horizontal ? el.scrollWidth - el.clientWidth : el.scrollHeight - el.clientHeight;
			if ("document" in el) {
				const doc = el.document.documentElement;
				return this.options.horizontal ? doc.scrollWidth - el.innerWidth : doc.scrollHeight - el.innerHeight;
			}
			return null;
		};
		this._momentumStop = null;
		this._stopMomentum = (done) => {
			const el = this.scrollElement;
			const win = this.targetWindow;
			if (el === null || win === null) return;
			const scroller = "document" in el ? el.document.scrollingElement : el;
			if (!(scroller == null ? void 0 : scroller.style)) return;
			if (this._momentumStop) {
				this._momentumStop.done = done;
				return;
			}
			const { style } = scroller;
			const property = this.options.horizontal ? "overflow-x" : "overflow-y";
			const value = style.getPropertyValue(property);
			const priority = style.getPropertyPriority(property);
			const crossSize = () => this.options.horizontal ? scroller.clientHeight : scroller.clientWidth;
			const crossSizeBefore = crossSize();
			style.setProperty(property, "hidden", "important");
			if (crossSize() !== crossSizeBefore) {
				style.setProperty(property, value, priority);
				return;
			}
			const stop = {
				restore: () => {
					if (style.getPropertyValue(property) !== "hidden" || style.getPropertyPriority(property) !== "important") return false;
					style.setProperty(property, value, priority);
					return true;
				},
				done
			};
			this._momentumStop = stop;
			win.requestAnimationFrame(() => win.requestAnimationFrame(() => {
				if (this._momentumStop !== stop) return;
				this._momentumStop = null;
				if (stop.restore()) stop.done();
			}));
		};
		this._clampedBy = (target) => {
			const elementMax = this._elementMaxScrollOffset();
			if (elementMax === null) return null;
			const maxAtWrite = elementMax + this._holdOffset;
			return target > maxAtWrite + .5 ? {
				target,
				maxAtWrite
			} : null;
		};
		this.getVirtualDistanceFromEnd = () => {
			return Math.max(this._getLayoutTotalSize() + this.options.scrollMargin - this.getSize() - this.getScrollOffset(), 0);
		};
		this.getDistanceFromEnd = () => {
			return Math.max(this.getMaxScrollOffset() - this.getScrollOffset(), 0);
		};
		this.isAtEnd = (threshold = this.options.scrollEndThreshold) => {
			return this.getDistanceFromEnd() <= threshold;
		};
		this.getOffsetForAlignment = (toOffset, align, itemSize = 0) => {
			if (!this.scrollElement) return 0;
			const size = this.getSize();
			const scrollOffset = this.getScrollOffset();
			if (align === "auto") align = toOffset >= scrollOffset + size ? "end" : "start";
			if (align === "center") toOffset += (itemSize - size) / 2;
			else if (align === "end") toOffset -= size;
			const maxOffset = this.getMaxScrollOffset();
			return Math.max(Math.min(maxOffset, toOffset), 0);
		};
		this.getOffsetForIndex = (index, align = "auto") => {
			index = Math.max(0, Math.min(index, this.options.count - 1));
			const size = this.getSize();
			const scrollOffset = this.getScrollOffset();
			const item = this.getMeasurements()[index];
			if (!item) return;
			if (align === "auto") {
				if (item.end >= scrollOffset + size - this.options.scrollPaddingEnd) align = "end";
				else if (item.start <= scrollOffset + this.options.scrollPaddingStart) align = "start";
				else return [scrollOffset, align];
			}
			if (align === "end" && index === this.options.count - 1) {
				const maxOffset = this.getMaxScrollOffset();
				const toOffset2 = maxOffset - this.options.paddingEnd + this.options.scrollPaddingEnd;
				return [Math.max(Math.min(toOffset2, maxOffset), 0), align];
			}
			const toOffset = align === "end" ? item.end + this.options.scrollPaddingEnd : item.start - this.options.scrollPaddingStart;
			return [this.getOffsetForAlignment(toOffset, align, item.size), align];
		};
		this.scrollToOffset = (toOffset, { align = "start", behavior = "auto" } = {}) => {
			this._startScroll({
				index: null,
				align
			}, this.getOffsetForAlignment(toOffset, align), behavior, "absolute");
		};
		this.scrollToIndex = (index, { align: initialAlign = "auto", behavior = "auto" } = {}) => {
			index = Math.max(0, Math.min(index, this.options.count - 1));
			const offsetInfo = this.getOffsetForIndex(index, initialAlign);
			if (!offsetInfo) return;
			const [offset, align] = offsetInfo;
			this._startScroll({
				index,
				align
			}, offset, behavior, "absolute");
		};
		this.scrollBy = (delta, { behavior = "auto" } = {}) => {
			const offset = this.getOffsetForAlignment((this.getCommandWrittenOffset() ?? this.getScrollOffset()) + delta, "start");
			this._startScroll({
				index: null,
				align: "start"
			}, offset, behavior, "relative");
		};
		this.scrollToEnd = ({ behavior = "auto" } = {}) => {
			if (this.options.count > 0) {
				this._startScroll({
					index: this.options.count - 1,
					align: "end",
					toEnd: true
				}, Math.max(this.getMaxScrollOffset(), 0), behavior, "absolute");
				return;
			}
			this.scrollToOffset(Math.max(this.getTotalSize() - this.getSize(), 0), { behavior });
		};
		this.cancelScroll = () => {
			if (this.rafId != null && this.targetWindow) {
				this.targetWindow.cancelAnimationFrame(this.rafId);
				this.rafId = null;
			}
			this.scrollState = null;
		};
		this.getTotalSize = () => Math.max(this._getLayoutTotalSize() - this._holdOffset, 0);
		this._getLayoutTotalSize = () => {
			var _a, _b;
			const measurements = this.getMeasurements();
			let end;
			if (measurements.length === 0) end = this.options.paddingStart;
			else if (this.options.lanes === 1) {
				const lastIdx = measurements.length - 1;
				const flat = (_a = this._singleLaneMeasurements) == null ? void 0 : _a.flat;
				if (flat != null) end = flat[lastIdx * 2] + flat[lastIdx * 2 + 1];
				else end = ((_b = measurements[lastIdx]) == null ? void 0 : _b.end) ?? 0;
			} else {
				const endByLane = Array(this.options.lanes).fill(null);
				let endIndex = measurements.length - 1;
				while (endIndex >= 0 && endByLane.some((val) => val === null)) {
					const item = measurements[endIndex];
					if (endByLane[item.lane] === null) endByLane[item.lane] = item.end;
					endIndex--;
				}
				end = Math.max(...endByLane.filter((val) => val !== null));
			}
			return Math.max(end - this.options.scrollMargin + this.options.paddingEnd, 0);
		};
		this.takeSnapshot = () => {
			const snapshot = [];
			if (this.itemSizeCache.size === 0) return snapshot;
			const m = this.getMeasurements();
			for (const item of m) if (item && this.itemSizeCache.has(item.key)) snapshot.push({
				index: item.index,
				key: item.key,
				start: item.start,
				size: item.size,
				end: item.end,
				lane: item.lane
			});
			return snapshot;
		};
		this._scrollToOffset = (offset, { adjustments, behavior } = {}) => {
			const write = {
				target: offset + (adjustments ?? 0),
				smooth: behavior === "smooth"
			};
			this.pendingWrite = write;
			this.options.scrollToFn(offset - this._holdOffset, {
				behavior,
				adjustments
			}, this);
			return write;
		};
		this.getCommandWrittenOffset = () => this.scrollState !== null && this.pendingWrite !== null && !this.pendingWrite.smooth ? this.pendingWrite.target : null;
		this._awaitingCommandReadBack = () => {
			const writtenOffset = this.getCommandWrittenOffset();
			return !(isIOSWebKit() && this._iosGesture.dragging()) && writtenOffset !== null && !approxEqual(writtenOffset, this.getScrollOffset());
		};
		this._followOffsetTarget = (delta) => {
			if (this.scrollState !== null && this.scrollState.index == null) this.scrollState.lastTargetOffset += delta;
		};
		this.measure = () => {
			this.pendingMin = null;
			this.itemSizeCache.clear();
			this.laneAssignments.clear();
			this.itemSizeCacheVersion++;
			this.notify(false);
		};
		this.setOptions(opts);
	}
	/**
	* @deprecated Always 0: a scroll correction is folded into `scrollOffset`
	* at once, so there is never an outstanding adjustment to add to it. Read
	* `scrollOffset` alone.
	*/
	get scrollAdjustments() {
		return 0;
	}
	applyScrollAdjustment(delta, behavior) {
		if (delta === 0) return false;
		this._followOffsetTarget(delta);
		if (!this._canWriteScroll()) {
			this._holdOffset += delta;
			if (this.scrollOffset !== null) this.scrollOffset += delta;
			return true;
		} else {
			const offset = this.getScrollOffset();
			this._clampedAdjustment = this._clampedBy(offset + delta);
			const write = this._scrollToOffset(offset, {
				adjustments: delta,
				behavior
			});
			if (this.scrollOffset !== null) {
				if (this.pendingWrite === write) this.scrollOffset += delta;
				if (this.scrollOffset < 0) this.scrollOffset = 0;
			}
			return true;
		}
	}
	scheduleScrollReconcile() {
		if (!this.targetWindow) {
			this.scrollState = null;
			return;
		}
		if (this.rafId != null) return;
		this.rafId = this.targetWindow.requestAnimationFrame(() => {
			this.rafId = null;
			this.reconcileScroll();
		});
	}
	getScrollStateTarget(state) {
		const offsetInfo = state.toEnd ? [Math.max(this.getMaxScrollOffset(), 0)] : state.index != null ? this.getOffsetForIndex(state.index, state.align) : void 0;
		return offsetInfo ? offsetInfo[0] : state.lastTargetOffset;
	}
	reconcileScroll() {
		if (!this.scrollState) return;
		if (!this.scrollElement) return;
		if (this.now() - this.scrollState.startedAt > 5e3) {
			this.scrollState = null;
			return;
		}
		if (this.scrollState.phase === "queued") {
			this.scheduleScrollReconcile();
			return;
		}
		this.getMeasurements();
		const targetOffset = this.getScrollStateTarget(this.scrollState);
		const STABLE_FRAMES = this.scrollState.index == null ? 1 : this.options.useAnimationFrameWithResizeObserver ? 3 : 2;
		const targetChanged = targetOffset !== this.scrollState.lastTargetOffset;
		if (!targetChanged && approxEqual(targetOffset, this.getScrollOffset())) {
			if (this.scrollState.phase === "smooth") this.scrollState.phase = "smoothLanded";
			else if (this.scrollState.phase === "smoothFinishing") this.scrollState.phase = "instant";
			this.scrollState.stableFrames++;
			if (this.scrollState.stableFrames >= STABLE_FRAMES) {
				if (this.getScrollOffset() !== targetOffset) this._scrollToOffset(targetOffset, { behavior: "auto" });
				this.scrollState = null;
				return;
			}
		} else {
			this.scrollState.stableFrames = 0;
			if (targetChanged) {
				const viewport = this.getSize() || 600;
				const distance = Math.abs(targetOffset - this.getScrollOffset());
				const keepSmooth = isSmoothScroll(this.scrollState) && distance > viewport;
				this.scrollState.lastTargetOffset = targetOffset;
				if (keepSmooth) this.scrollState.phase = "smooth";
				else if (this.scrollState.phase === "smooth") this.scrollState.phase = "smoothFinishing";
				else if (this.scrollState.phase === "smoothLanded") this.scrollState.phase = "instant";
				this._scrollToOffset(targetOffset, { behavior: keepSmooth ? "smooth" : "auto" });
			}
		}
		this.scheduleScrollReconcile();
	}
	_startScroll(target, offset, behavior, kind) {
		this.pendingScrollAnchor = null;
		this._clampedAdjustment = null;
		const tail = this._iosGesture.tail();
		if (kind === "absolute" && tail !== null) {
			if (tail === "fling" && momentumOverridesWrites()) {
				this._stopMomentum(() => {
					const state = this.scrollState;
					if ((state == null ? void 0 : state.phase) !== "queued" || this._iosGesture.tail() !== "fling" || this._reportedOverscroll) return;
					this._iosGesture.end();
					this._flushHoldIfReady(true);
					this._writeAwaitingCommand();
				});
				this.scrollState = {
					...target,
					startedAt: this.now(),
					lastTargetOffset: offset,
					stableFrames: 0,
					phase: "queued",
					behavior,
					samples: []
				};
				this.scheduleScrollReconcile();
				return;
			}
			this._iosGesture.end();
		}
		this.scrollState = {
			...target,
			startedAt: this.now(),
			lastTargetOffset: offset,
			stableFrames: 0,
			behavior,
			phase: initialScrollPhase(behavior, target.index != null && approxEqual(offset, this.getScrollOffset()))
		};
		this._scrollToOffset(offset, { behavior });
		this.scheduleScrollReconcile();
	}
};
var findNearestBinarySearch = (low, high, getCurrentValue, value) => {
	while (low <= high) {
		const middle = (low + high) / 2 | 0;
		const currentValue = getCurrentValue(middle);
		if (currentValue < value) low = middle + 1;
		else if (currentValue > value) high = middle - 1;
		else return middle;
	}
	if (low > 0) return low - 1;
	else return 0;
};
function findNearestBinarySearchFlat(flat, high, value) {
	let low = 0;
	while (low <= high) {
		const middle = (low + high) / 2 | 0;
		const currentValue = flat[middle * 2];
		if (currentValue < value) low = middle + 1;
		else if (currentValue > value) high = middle - 1;
		else return middle;
	}
	return low > 0 ? low - 1 : 0;
}
function calculateRangeImpl(measurements, outerSize, scrollOffset, lanes, flat) {
	const lastIndex = measurements.length - 1;
	if (measurements.length <= lanes) return {
		startIndex: 0,
		endIndex: lastIndex
	};
	if (lanes === 1 && flat !== null) {
		const startIndex2 = findNearestBinarySearchFlat(flat, lastIndex, scrollOffset);
		let endIndex2 = startIndex2;
		const limit = scrollOffset + outerSize;
		while (endIndex2 < lastIndex && flat[endIndex2 * 2] + flat[endIndex2 * 2 + 1] < limit) endIndex2++;
		return {
			startIndex: startIndex2,
			endIndex: endIndex2
		};
	}
	const getStart = (index) => measurements[index].start;
	let startIndex = findNearestBinarySearch(0, lastIndex, getStart, scrollOffset);
	let endIndex = startIndex;
	if (lanes === 1) while (endIndex < lastIndex && measurements[endIndex].end < scrollOffset + outerSize) endIndex++;
	else if (lanes > 1) {
		const endPerLane = Array(lanes).fill(0);
		while (endIndex < lastIndex && endPerLane.some((pos) => pos < scrollOffset + outerSize)) {
			const item = measurements[endIndex];
			endPerLane[item.lane] = item.end;
			endIndex++;
		}
		const startPerLane = Array(lanes).fill(scrollOffset + outerSize);
		while (startIndex >= 0 && startPerLane.some((pos) => pos >= scrollOffset)) {
			const item = measurements[startIndex];
			startPerLane[item.lane] = item.start;
			startIndex--;
		}
		startIndex = Math.max(0, startIndex - startIndex % lanes);
		endIndex = Math.min(lastIndex, endIndex + (lanes - 1 - endIndex % lanes));
	}
	return {
		startIndex,
		endIndex
	};
}
// src/sections/table/virtual.ts
/** The rows to draw of `count` rows of `size` px in a scrolling element; all of them when `on` is false. head: px of a heading that stays above them. */
function useRows(count, size, on, scroller, head = 0) {
	const [, redraw] = _$2((n) => n + 1, 0);
	const engine = w$2(() => new Virtualizer({
		count,
		estimateSize: () => size,
		overscan: 12,
		paddingStart: head,
		scrollPaddingStart: head,
		getScrollElement: () => scroller.current,
		observeElementRect,
		observeElementOffset,
		scrollToFn: elementScroll,
		onChange: () => redraw(0),
		initialRect: {
			width: 800,
			height: 720
		}
	}), []);
	engine.setOptions({
		...engine.options,
		count,
		estimateSize: () => size,
		enabled: on
	});
	F$1(() => engine._didMount(), []);
	F$1(() => engine._willUpdate());
	if (!on) return {
		items: Array.from({ length: count }, (_, index) => ({ index })),
		before: 0,
		after: 0,
		scrollTo: (index) => scroller.current?.querySelector(`[data-at="${index}"]`)?.scrollIntoView({ block: "nearest" })
	};
	const items = engine.getVirtualItems();
	const first = items[0]?.start ?? 0;
	const end = items.at(-1)?.end ?? 0;
	return {
		items,
		before: Math.max(0, first - head),
		after: Math.max(0, engine.getTotalSize() - end),
		scrollTo: (index) => engine.scrollToIndex(index, { align: "auto" })
	};
}
// src/sections/timeline/events.tsx
/** Rows that are requested at once. */
var PAGE = 200;
var SETTLES$2 = 200;
var SCROLLS = 60;
var ROW$1 = 30;
/** Rows of the table: no browser lays out a taller one than these are. */
var MOST$2 = 5e5;
/** Depth up to which names are indented. */
var DEEPEST = 12;
function EventTable({ model, why }) {
	const tracks = model.tracks.value.filter((t) => t.lanes > 0);
	const [chosen, choose] = d$2(null);
	const selected = model.detail.value?.track;
	const track = tracks.find((t) => t.track === (chosen ?? selected)) ?? tracks.find((t) => t.kind === "stream") ?? tracks[0];
	const window = model.window.value;
	const [loaded, setLoaded] = d$2({
		of: "",
		total: 0,
		pages: /* @__PURE__ */ new Map()
	});
	const [error, setError] = d$2("");
	const scroller = T$1(null);
	const { total, pages } = loaded;
	const rows = useRows(Math.min(total, MOST$2), ROW$1, true, scroller, ROW$1);
	const [from, to] = [Math.floor(window.start), Math.ceil(window.end)];
	const key = JSON.stringify([
		track?.track,
		from,
		to
	]);
	const fresh = loaded.of === key;
	const ends = [rows.items[0]?.index ?? 0, rows.items.at(-1)?.index ?? 0].map((index) => Math.floor(index / PAGE));
	const lacking = fresh ? [...new Set(ends)].filter((page) => !pages.has(page)) : [0];
	A$1(() => {
		if (!track || !lacking.length) return;
		const stop = new AbortController();
		const timer = globalThis.setTimeout(() => {
			const ask = (page) => getEvents(model.at, {
				track: track.track,
				start_ns: from,
				end_ns: to,
				cursor: page ? String(page * PAGE) : "",
				limit: PAGE
			}, stop.signal);
			Promise.all(lacking.map(ask)).then((came) => {
				if (!fresh && scroller.current) scroller.current.scrollTop = 0;
				setLoaded({
					of: key,
					total: came[0].total,
					pages: new Map([...fresh ? pages : [], ...lacking.map((page, i) => [page, came[i].events])])
				});
				setError("");
			}, (e) => {
				if (!stop.signal.aborted) setError(e instanceof Error ? e.message : String(e));
			});
		}, fresh ? SCROLLS : SETTLES$2);
		return () => {
			globalThis.clearTimeout(timer);
			stop.abort();
		};
	}, [key, lacking.join()]);
	const at = model.selected.value;
	const mine = track && fresh && at?.path === track.path && at.start + at.duration >= from && at.start < to ? at : null;
	A$1(() => {
		if (!track || !mine) return;
		for (const [page, events] of pages) {
			const place = events.findIndex((e) => e.start_ns === mine.start && e.duration_ns === mine.duration);
			if (place >= 0) return rows.scrollTo(page * PAGE + place);
		}
		const stop = new AbortController();
		getEvents(model.at, {
			track: track.track,
			start_ns: from,
			end_ns: Math.max(mine.start, from),
			limit: 1
		}, stop.signal).then(({ total: before }) => rows.scrollTo(Math.min(before, 499999)), () => void 0);
		return () => stop.abort();
	}, [
		fresh,
		key,
		mine?.start,
		mine?.duration
	]);
	if (!track) return /* @__PURE__ */ a("p", {
		class: "prose pad",
		children: "No row of this timeline has events."
	});
	return /* @__PURE__ */ a("div", {
		class: "tl-table",
		"aria-busy": !fresh,
		children: [
			why && /* @__PURE__ */ a(Notice, { notice: {
				level: "info",
				text: why
			} }),
			error && /* @__PURE__ */ a(Notice, { notice: {
				level: "error",
				text: `The events could not be read: ${error}`
			} }),
			/* @__PURE__ */ a("div", {
				class: "tl-table-head",
				children: [/* @__PURE__ */ a("label", {
					class: "field",
					children: ["Row ", /* @__PURE__ */ a("select", {
						value: String(track.track),
						onChange: (e) => choose(Number(e.currentTarget.value)),
						children: tracks.map((t) => /* @__PURE__ */ a("option", {
							value: String(t.track),
							children: t.path
						}))
					})]
				}), /* @__PURE__ */ a("span", {
					class: "quiet",
					role: "status",
					children: total ? `${human(total, "count")} ${total === 1 ? "event" : "events"} in view${total > MOST$2 ? `; the first ${human(MOST$2, "count")} are listed: zoom in for later ones` : ""}` : loaded.of ? "no event in view" : "reading…"
				})]
			}),
			/* @__PURE__ */ a(Rows$1, {
				model,
				loaded,
				rows,
				scroller,
				track
			})
		]
	});
}
/** Duration of rows in one unit, so that the points line up. */
function Rows$1({ model, loaded, rows, scroller, track }) {
	const { most, names } = w$2(() => {
		const every = [...loaded.pages.values()].flat();
		return {
			most: every.reduce((top, e) => Math.max(top, e.duration_ns), 1),
			names: new Map(every.map((e) => [e.event, e.name]))
		};
	}, [loaded]);
	const at = model.selected.value;
	const table = model.names.value;
	const gap = (height) => height > 0 ? /* @__PURE__ */ a("tr", {
		"aria-hidden": "true",
		class: "gap",
		children: /* @__PURE__ */ a("td", {
			colSpan: 5,
			style: { height: `${height}px` }
		})
	}) : null;
	return /* @__PURE__ */ a("div", {
		class: "tl-table-scroll",
		ref: scroller,
		tabIndex: 0,
		role: "region",
		"aria-label": `Events of ${track.path}`,
		children: /* @__PURE__ */ a("table", {
			class: "table",
			"aria-rowcount": loaded.total + 1,
			children: [
				/* @__PURE__ */ a("colgroup", { children: [
					/* @__PURE__ */ a("col", { class: "tl-col-time" }),
					/* @__PURE__ */ a("col", { class: "tl-col-length" }),
					/* @__PURE__ */ a("col", {}),
					/* @__PURE__ */ a("col", { class: "tl-col-parent" }),
					/* @__PURE__ */ a("col", { class: "tl-col-depth" })
				] }),
				/* @__PURE__ */ a("thead", { children: /* @__PURE__ */ a("tr", { children: [
					/* @__PURE__ */ a("th", {
						scope: "col",
						class: "num",
						"aria-sort": "ascending",
						children: "Start"
					}),
					/* @__PURE__ */ a("th", {
						scope: "col",
						class: "num",
						children: "Duration"
					}),
					/* @__PURE__ */ a("th", {
						scope: "col",
						children: "Name"
					}),
					/* @__PURE__ */ a("th", {
						scope: "col",
						children: "Inside of"
					}),
					/* @__PURE__ */ a("th", {
						scope: "col",
						class: "num",
						children: "Depth"
					})
				] }) }),
				/* @__PURE__ */ a("tbody", { children: [
					gap(rows.before),
					rows.items.map(({ index }) => {
						const e = loaded.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
						if (!e) return /* @__PURE__ */ a("tr", {
							"aria-rowindex": index + 2,
							"aria-busy": true,
							children: /* @__PURE__ */ a("td", {
								colSpan: 5,
								class: "quiet",
								children: "…"
							})
						}, index);
						const on = at?.path === track.path && at.start === e.start_ns && at.duration === e.duration_ns;
						const parts = humanParts(e.duration_ns, "ns");
						return /* @__PURE__ */ a("tr", {
							"data-at": index,
							"aria-rowindex": index + 2,
							class: on ? "selected" : "",
							"aria-selected": on,
							onClick: () => model.go(e),
							children: [
								/* @__PURE__ */ a("td", {
									class: "num",
									children: human(e.start_ns, "ns")
								}),
								/* @__PURE__ */ a("td", {
									class: "num",
									children: [
										/* @__PURE__ */ a("span", {
											class: "tl-mini",
											style: { width: `${Math.max(1, e.duration_ns / most * 60)}px` }
										}),
										parts.text,
										" ",
										/* @__PURE__ */ a("span", {
											class: "quiet",
											children: parts.unit
										})
									]
								}),
								/* @__PURE__ */ a("td", { children: /* @__PURE__ */ a("button", {
									type: "button",
									class: "link code",
									"data-tip": e.name,
									style: { paddingLeft: `${Math.min(e.depth ?? 0, DEEPEST) * 10}px` },
									children: table.shortOf(e.name)
								}) }),
								/* @__PURE__ */ a("td", {
									class: "code quiet",
									children: table.shortOf(names.get(e.parent ?? -1) ?? (e.depth ? "…" : ""))
								}),
								/* @__PURE__ */ a("td", {
									class: "num",
									children: e.depth ?? e.lane
								})
							]
						}, index);
					}),
					gap(rows.after)
				] })
			]
		})
	});
}
// src/sections/timeline/perfetto.ts
var PERFETTO = "https://ui.perfetto.dev";
var EVERY = 100;
var LONGEST$1 = 3e4;
/** Sends `PING` until `PONG` comes from that tab and origin, then the trace, then the window in seconds. */
function handOver(tab, trace, origin = PERFETTO, { every = EVERY, longest = LONGEST$1 } = {}) {
	return new Promise((done) => {
		const began = performance.now();
		const end = (outcome) => {
			window.clearInterval(timer);
			window.removeEventListener("message", heard);
			done(outcome);
		};
		const heard = (event) => {
			if (event.origin !== origin || event.source !== tab || event.data !== "PONG") return;
			tab.postMessage({ perfetto: {
				buffer: trace.buffer,
				title: trace.title,
				fileName: trace.fileName,
				localOnly: true,
				keepApiOpen: true
			} }, origin);
			if (trace.view) tab.postMessage({ perfetto: {
				timeStart: trace.view.start / 1e9,
				timeEnd: trace.view.end / 1e9,
				viewPercentage: .9
			} }, origin);
			end("taken");
		};
		window.addEventListener("message", heard);
		const timer = window.setInterval(() => {
			if (tab.closed) return end("closed");
			if (performance.now() - began > longest) return end("silent");
			tab.postMessage("PING", origin);
		}, every);
	});
}
// src/sections/timeline/handover.tsx
/** Events from which on a part is proposed instead of everything: about 200 MB of text. */
var MANY = 7e5;
var ALL = -1;
/** ms after which the size of another part is asked for. */
var SETTLES$1 = 120;
/** What is written, of the worker at a place or of ALL: where it is asked for, and the window in its own times. null: no row of the selection is its. */
function wanted(model, part, worker) {
	const [now, area, tracks] = [
		model.window.value,
		model.area.value,
		model.tracks.value
	];
	const chosen = part === "view" ? now : part === "area" ? area : null;
	const by = worker === ALL ? 0 : model.shape.value?.alignment[worker]?.offset_ns ?? 0;
	const span = chosen && {
		start: chosen.start - by,
		end: chosen.end - by
	};
	const every = part === "area" && area?.paths.length ? withBelow(model.tracksOf(area), tracks) : null;
	const mine = every && (worker === ALL ? every : ofWorker(every, tracks, worker));
	if (mine && !mine.length) return null;
	return {
		at: worker === ALL ? model.at : {
			...model.at,
			al: "",
			workers: [model.at.workers[worker] ?? ""],
			spans: [model.at.spans[worker] ?? ""]
		},
		span,
		query: {
			...span && {
				start_ns: String(Math.floor(span.start)),
				end_ns: String(Math.ceil(span.end))
			},
			...mine && { tracks: rangesOf(mine) }
		}
	};
}
/** Words for how large a part will be, once the server has said so. */
function useSize(at, query) {
	const [size, setSize] = d$2({
		key: "",
		text: ""
	});
	const key = at ? JSON.stringify([at, query]) : "";
	A$1(() => {
		if (!at) return;
		const stop = new AbortController();
		const timer = window.setTimeout(() => {
			const say = (text) => {
				if (!stop.signal.aborted) setSize({
					key,
					text
				});
			};
			getExportSize(at, query, stop.signal).then(({ events, bytes }) => say(`${human(events, "count")} events, \u2248\u202f${human(Number(bytes.toPrecision(2)), "B")} of text, a tenth of it compressed`), () => say(""));
		}, SETTLES$1);
		return () => {
			window.clearTimeout(timer);
			stop.abort();
		};
	}, [key]);
	return size.key === key ? size.text : "";
}
var TEXT = {
	reading: "The trace is being written…",
	waiting: "Waiting for Perfetto to answer…",
	taken: "Perfetto has the trace.",
	silent: "Perfetto did not answer within 30 seconds: it may not be reachable from here. Save the trace and open it there.",
	closed: "The tab was closed before Perfetto answered.",
	blocked: "The browser blocked the new tab. The trace is ready: open it now."
};
var OUTSIDE = "Perfetto is an outside page, loaded from ui.perfetto.dev. The trace is given to its tab and stays in this browser.";
var HERE = "Perfetto is served from here, by a package installed beside this one: nothing is loaded from outside. The trace stays in this browser; ui.perfetto.dev is an outside page.";
function TraceFile({ model }) {
	return /* @__PURE__ */ a(Popover, {
		button: "Trace file",
		class: "button",
		label: "Save as a trace file, or open in Perfetto",
		tip: "Save the view, the selection or everything as a trace file; open it in Perfetto",
		align: "right",
		disabled: !model.shape.value,
		children: () => /* @__PURE__ */ a(Card$1, { model })
	});
}
function Card$1({ model }) {
	const large = (model.shape.value?.events ?? 0) > MANY;
	const area = model.area.value;
	const [part, setPart] = d$2(area ? "area" : large ? "view" : "all");
	const [state, setState] = d$2("");
	const [ready, setReady] = d$2(null);
	const [worker, setWorker] = d$2(ALL);
	const workers = model.shape.value?.alignment ?? [];
	const whole = wanted(model, part, worker);
	const { query, span, at } = whole ?? {
		query: {},
		span: null,
		at: model.at
	};
	const size = useSize(whole && at, query);
	const who = worker !== ALL ? workers[worker]?.worker ?? "" : workers.length > 1 ? `${workers.length} workers` : model.at.workers[0] ?? "";
	const name = `${who.replace(" ", "_") || "timeline"}.pt.trace.json.gz`;
	const by = worker === ALL ? 0 : workers[worker]?.offset_ns ?? 0;
	const own = model.tracks.value.filter((t) => t.events > 0 && (worker === ALL || t.worker === worker));
	const lead = Math.max(0, ...own.map((t) => by - t.first_ns));
	const offline = model.shape.value?.perfetto;
	const send = async (tab, buffer, origin) => {
		if (!tab) {
			setReady(buffer);
			return setState("blocked");
		}
		setState("waiting");
		setState(await handOver(tab, {
			buffer,
			title: `${model.at.run} ${who}`.trim(),
			fileName: name,
			view: span && {
				start: span.start + lead,
				end: span.end + lead
			}
		}, origin));
	};
	const open = (address) => {
		const tab = window.open(address);
		const origin = new URL(address).origin;
		if (ready) return void send(tab, ready, origin);
		setState("reading");
		getTimelineFile(at, {
			...query,
			split_overlaps: 1,
			...worker === ALL && { fp: model.shape.peek().fingerprint }
		}).then((buffer) => send(tab, buffer, origin), (error) => setState(error instanceof Error ? error.message : String(error)));
	};
	const here = offline ? new URL(offline, document.baseURI).href : "";
	const again = () => {
		setReady(null);
		setState("");
	};
	return /* @__PURE__ */ a("div", {
		class: "tl-menu tl-file",
		children: [
			/* @__PURE__ */ a(Switch, {
				label: "What to write",
				value: part,
				choices: [
					{
						value: "view",
						text: "View"
					},
					...area ? [{
						value: "area",
						text: "Selection"
					}] : [],
					{
						value: "all",
						text: "Everything"
					}
				],
				onPick: (value) => {
					setPart(value);
					again();
				}
			}),
			workers.length > 1 && /* @__PURE__ */ a("label", {
				class: "field",
				children: [
					"Workers",
					" ",
					/* @__PURE__ */ a("select", {
						value: String(worker),
						onChange: (e) => {
							setWorker(Number(e.currentTarget.value));
							again();
						},
						children: [/* @__PURE__ */ a("option", {
							value: String(ALL),
							children: [
								"all ",
								workers.length,
								" in one file"
							]
						}), workers.map((w, k) => /* @__PURE__ */ a("option", {
							value: String(k),
							children: [w.worker || "recording", " alone"]
						}))]
					})
				]
			}),
			/* @__PURE__ */ a("p", {
				class: "quiet",
				children: [
					span ? `${human(span.end - span.start, "ns")} of ${human(model.all.value.end, "ns")}` : "The whole recording",
					size && `: ${size}`,
					".",
					part === "all" && large ? " That is more than Perfetto may open; the view is a smaller part." : ""
				]
			}),
			workers.length > 1 && worker === ALL && /* @__PURE__ */ a("p", {
				class: "quiet",
				children: [
					"On one clock (",
					methodOf(model),
					"), processes named after their worker: for other viewers. To open a file here again, save one worker alone."
				]
			}),
			!whole && /* @__PURE__ */ a("p", {
				class: "warn-text",
				children: "No row of the selection is of this worker."
			}),
			/* @__PURE__ */ a("button", {
				type: "button",
				class: "button",
				disabled: !whole,
				onClick: () => downloadFrom(timelineAddress("export", at, query), name),
				children: "Save as a trace file"
			}),
			/* @__PURE__ */ a("button", {
				type: "button",
				class: "button",
				disabled: !whole,
				onClick: () => open(here || "https://ui.perfetto.dev"),
				children: ready ? "Open it now" : "Open in Perfetto"
			}),
			here && !ready && /* @__PURE__ */ a("button", {
				type: "button",
				class: "button",
				disabled: !whole,
				onClick: () => open("https://ui.perfetto.dev"),
				children: "Open at ui.perfetto.dev"
			}),
			/* @__PURE__ */ a("p", {
				class: "quiet",
				role: "status",
				children: TEXT[state] ?? (state || (here ? HERE : OUTSIDE))
			})
		]
	});
}
// src/sections/timeline/hover.tsx
var BESIDE = 14;
function HoverCard({ model }) {
	const item = model.hover.value;
	const reading = model.reading.value;
	const at = item ?? reading;
	const card = T$1(null);
	const pixel = lengthOf(model.window.value) / model.width.value;
	F$1(() => {
		const el = card.current;
		const plot = el?.closest(".tl")?.querySelector(".tl-canvas")?.getBoundingClientRect();
		if (!el || !plot || !at) return;
		const { width, height } = el.getBoundingClientRect();
		const [x, y] = [plot.left + at.x, plot.top + at.y];
		el.style.left = `${x + BESIDE + width > window.innerWidth - 8 ? Math.max(8, x - BESIDE - width) : x + BESIDE}px`;
		el.style.top = `${y + BESIDE + height > window.innerHeight - 8 ? Math.max(8, y - BESIDE - height) : y + BESIDE}px`;
	});
	if (!item) return reading && /* @__PURE__ */ a("div", {
		class: "tl-hover",
		ref: card,
		role: "tooltip",
		children: [/* @__PURE__ */ a("strong", { children: reading.track.label }), /* @__PURE__ */ a("dl", { children: [...reading.rows, ["At", moment(reading.time, pixel)]].map(([k, v]) => /* @__PURE__ */ a("div", { children: [/* @__PURE__ */ a("dt", { children: k }), /* @__PURE__ */ a("dd", { children: v })] })) })]
	});
	const known = model.hovered.value;
	const longest = known && known.event === item.event && known.track === item.track.track ? known : null;
	const detail = item.count === 1 ? longest : null;
	const length = detail?.duration_ns ?? item.end - item.start;
	const own = detail?.self_ns ?? item.nesting.own;
	const around = detail ? detail.parents[0]?.duration_ns : item.nesting.parent;
	const rows = item.count > 1 ? [
		["Events", `${item.count === 65535 ? "≥ " : ""}${human(item.count, "count")}, merged below one pixel`],
		["From", moment(item.start, pixel)],
		["Length", human(item.end - item.start, "ns")],
		["Busy", human(item.busy, "ratio")],
		...longest ? [["Longest", human(longest.duration_ns, "ns")]] : []
	] : [
		["Duration", human(length, "ns")],
		["Start", moment(detail?.start_ns ?? item.start, pixel)],
		...own !== null && own !== length ? [["Self", human(own, "ns")]] : [],
		...around ? [["Of its parent", human(length / around, "ratio")]] : [],
		...(detail?.fields ?? []).filter((f) => [
			"Limit",
			"Limit of the operator call",
			"Speed of light",
			"Speed of light of the call",
			"From its launch",
			"Bandwidth",
			"Operator"
		].includes(f.label)).map((f) => [f.label, `${f.mark === "estimated" ? "≈ " : ""}${typeof f.value === "number" ? human(f.value, f.unit) : f.value}`])
	];
	const [name, whole] = [model.names.value.short(item.name), model.names.value.at(item.name)];
	return /* @__PURE__ */ a("div", {
		class: "tl-hover",
		ref: card,
		role: "tooltip",
		children: [
			/* @__PURE__ */ a("strong", {
				class: "code",
				children: item.count > 1 ? `longest: ${name}` : name
			}),
			whole !== name && /* @__PURE__ */ a("span", {
				class: "code quiet tl-whole",
				children: whole
			}),
			/* @__PURE__ */ a("span", {
				class: "quiet",
				children: item.track.label
			}),
			/* @__PURE__ */ a("dl", { children: rows.map(([k, v]) => /* @__PURE__ */ a("div", { children: [/* @__PURE__ */ a("dt", { children: k }), /* @__PURE__ */ a("dd", { children: v })] })) }),
			item.count > 1 && /* @__PURE__ */ a("span", {
				class: "quiet",
				children: "Click: zoom until they stand apart"
			})
		]
	});
}
// src/sections/timeline/keys.ts
/** What each key does, for the card of keys. */
var KEYS$1 = [
	["W S", "zoom in and out at the pointer"],
	["A D", "pan; with Shift a page"],
	["F", "zoom to the selection; again: fill the view"],
	["0", "everything"],
	["Alt+← →", "back and forward in the places you zoomed to"],
	["Enter", "select what is under the pointer, else the first event in view; in the search, the next hit"],
	["C", "measure from the selected event; on another one, the gap between both"],
	["R", "the selected event as an area"],
	["Ctrl+A", "the view as an area"],
	[". ,", "next and previous event of the lane"],
	["↑ ↓", "parent and first child; in the list of rows, from row to row"],
	["] [", "follow a link out, in"],
	["M", "mark the time under the pointer; Shift+M: next mark"],
	["/", "search; N, Shift+N: next and previous hit"],
	["T", "find a row"],
	["P H E", "pin, hide, open the row of the selection; Shift+E: all rows"],
	["Q", "details"],
	["L", "events as a table"],
	["Esc", "leave the search, the selection, the area"],
	["?", "this card"]
];
/** The track that a key of rows is about: of the pointer, else of the selection. */
function trackOf(model) {
	const focused = document.activeElement?.closest(".tl-tree") ? model.trackAt(model.cursor.peek()) : null;
	if (focused) return focused;
	const at = model.hover.peek()?.track.track ?? model.detail.peek()?.track;
	return at === void 0 ? null : model.tracks.peek()[at] ?? null;
}
/** The letter that a key writes; where that is none of the Latin ones, the one at its place of a US keyboard. "" for no letter. */
var written = ({ code, key }) => /^[a-z]$/i.test(key) ? key.toUpperCase() : placeOf$1(code);
var placeOf$1 = (code) => code.startsWith("Key") ? code.slice(3) : "";
/** The letter of a key: W A S D stand where they do on a US keyboard, the others are what the key writes. */
function letterOf(event) {
	const place = placeOf$1(event.code);
	if (place && "WASD".includes(place)) return place;
	const letter = written(event);
	return "WASD".includes(letter) ? place : letter;
}
/** Keys that what has the focus inside of the timeline needs itself: Enter of a button or a link, the arrows of what scrolls. */
function kept({ target, key }) {
	const el = target;
	if (key === "Enter") return !!el?.closest("button,a,summary");
	return key.startsWith("Arrow") && !!el?.closest(".tl-table-scroll,.tl-area,.float");
}
/** Whether a key was one of the timeline's. */
function onKey(event, model, to) {
	if (typing(event.target) || event.defaultPrevented || letterAwaited() || kept(event)) return false;
	const { key } = event;
	const bracket = key === "[" || key === "]";
	if (event.altKey && !bracket) {
		if (key === "ArrowLeft") return model.history(-1), true;
		if (key === "ArrowRight") return model.history(1), true;
		return false;
	}
	if ((event.ctrlKey || event.metaKey) && !bracket) {
		if (written(event) !== "A") return false;
		model.chooseView();
		return true;
	}
	const page = event.shiftKey ? .9 : .15;
	const letter = letterOf(event);
	if ("WASD".includes(letter) && letter) {
		if (letter === "W") model.zoom(.7);
		else if (letter === "S") model.zoom(1 / .7);
		else model.pan(letter === "A" ? -page : page);
		return true;
	}
	switch (key) {
		case "+":
		case "=": return model.zoom(.7), true;
		case "-": return model.zoom(1 / .7), true;
		case "ArrowLeft": return model.pan(-page), true;
		case "ArrowRight": return model.pan(page), true;
		case "ArrowUp": return model.detail.peek() ? (model.parent(), true) : false;
		case "ArrowDown": return model.detail.peek() ? model.child() : model.first(), true;
		case "0": return model.everything(), true;
		case ".": return model.beside(1), true;
		case ",": return model.beside(-1), true;
		case "]": return model.flow(1), true;
		case "[": return model.flow(-1), true;
		case "/": return to.search(), true;
		case "?": return to.help(), true;
		case "Enter": {
			const item = model.hover.peek();
			item ? model.pick(item) : model.first();
			return true;
		}
		case "Escape": return escape(model);
	}
	switch (letter) {
		case "F": return model.fit(), true;
		case "M": return event.shiftKey ? model.nextMark() : model.mark(model.pointer ?? model.selection()?.start ?? middle(model)), true;
		case "N": return model.finder.step(event.shiftKey ? -1 : 1), true;
		case "T": return to.findTrack(), true;
		case "Q": return model.paneOpen.value = !model.paneOpen.peek(), true;
		case "L": return to.table(), true;
		case "R": return model.chooseEvent(), true;
		case "C": return model.measure(), true;
	}
	const track = trackOf(model);
	if (letter === "E" && event.shiftKey) return model.rows.expandAll(), true;
	if (letter === "E") return track && model.rows.toggle(track), true;
	if (letter === "P") return track && model.rows.pin(track), true;
	if (letter === "H") return track && model.rows.hide(track), true;
	return false;
}
var middle = (model) => (model.window.peek().start + model.window.peek().end) / 2;
function escape(model) {
	if (model.compared.peek().length) model.compared.value = [];
	else if (model.finder.state.peek().text) model.finder.find("", "quiet");
	else if (model.selected.peek()) model.select(null);
	else if (model.area.peek()) model.choose(null);
	else return false;
	return true;
}
// src/sections/timeline/names.ts
var ELEMENTWISE = /^(?:\w+_)?elementwise_kernel\w*<(.+)>$/;
var NameTable = class {
	text;
	categories;
	shorts;
	constructor(names) {
		this.text = names.names;
		this.shorts = names.short ?? {};
		this.categories = Uint8Array.from(names.categories);
	}
	at(id) {
		return this.text[id] ?? "…";
	}
	/** What a person calls it: of a kernel its name without parameters and most template arguments. */
	short(id) {
		return this.shorts[id] ?? this.at(id);
	}
	/** The same where there is little room: of a loop over elements what it does to each. */
	narrow(id) {
		return ELEMENTWISE.exec(this.short(id))?.[1] ?? this.short(id);
	}
	byName = null;
	/** The short name of a name. */
	shortOf(name) {
		this.byName ??= new Map(Object.entries(this.shorts).map(([id, short]) => [this.at(Number(id)), short]));
		return this.byName.get(name) ?? name;
	}
};
var NO_NAMES = new NameTable({
	names: [],
	categories: []
});
/** Names above which only plain text is looked for, and not here. */
var MOST_SEARCHED = 2e5;
var categoryOf = (categories, name) => categories[name] ?? 0;
/** `/…/` is a regular expression, anything else plain text; letters of both cases are the same. */
function patternOf(text) {
	const found = /^\/(.+)\/$/s.exec(text);
	if (!found) {
		const plain = text.toLowerCase();
		return {
			test: (name) => name.toLowerCase().includes(plain),
			plain: true,
			wrong: ""
		};
	}
	try {
		const expression = new RegExp(found[1], "i");
		return {
			test: (name) => expression.test(name),
			plain: false,
			wrong: ""
		};
	} catch {
		return {
			test: () => false,
			plain: false,
			wrong: `${text} is no regular expression`
		};
	}
}
/** Ids of the names that match. */
function matching(names, pattern) {
	const out = [];
	names.text.forEach((name, id) => {
		if (pattern.test(name)) out.push(id);
	});
	return out;
}
// src/sections/timeline/raster.ts
var PLAIN = {
	same: -1,
	found: null,
	striped: false
};
/** Pixels from which on an item has a lighter one at its right end. */
var EDGED = 4;
/** First item of a lane that ends after a time. Items of a lane are in order and do not overlap. */
function firstAfter(tile, lane, time) {
	let [low, high] = [tile.bounds[lane], tile.bounds[lane + 1]];
	while (low < high) {
		const middle = low + high >> 1;
		if (tile.end[middle] > time) high = middle;
		else low = middle + 1;
	}
	return low;
}
/**
* Draws the items of one lane into one row of a raster, between `from` and `to` (ns) only. categories: place of each name's category.
* Returns how many items were drawn.
*/
function drawLane(raster, row, tile, lane, view, from, to, categories, paint, how) {
	if (lane >= tile.bounds.length - 1) return 0;
	const { width, pixels } = raster;
	const scale = width / lengthOf(view);
	const base = row * width;
	const [low, high] = [Math.max(0, Math.floor((from - view.start) * scale)), Math.min(width, Math.ceil((to - view.start) * scale))];
	let drawn = 0;
	const last = tile.bounds[lane + 1];
	for (let k = firstAfter(tile, lane, Math.max(from, view.start)); k < last; k++) {
		const start = tile.start[k];
		if (start >= to || start >= view.end) break;
		const x0 = Math.max(low, Math.floor((start - view.start) * scale));
		let x1 = Math.min(high, Math.round((tile.end[k] - view.start) * scale));
		if (x1 <= x0) x1 = x0 + 1;
		if (x0 >= high) continue;
		drawn++;
		const name = tile.name[k];
		const category = categories[name] ?? 0;
		const color = how.same === name ? paint.bright[category] : how.found && !how.found.has(name) ? paint.faded[category] : tile.count[k] > 1 ? shadeOf(paint, category, tile.busy[k]) : shadeOf(paint, category, 255);
		if (x1 - x0 < EDGED) for (let x = x0; x < x1; x++) pixels[base + x] = color;
		else {
			pixels.fill(color, base + x0, base + x1 - 1);
			if (how.striped) stripe(pixels, base, x0, x1 - 1, paint.stripe[category], stripesOf(category));
			pixels[base + x1 - 1] = paint.edge[category];
		}
	}
	return drawn;
}
/** Draws the stripes of a category over a run of pixels; they stand at the same places of the screen in every run. */
function stripe(pixels, base, x0, x1, color, { period, at }) {
	for (const offset of at) for (let x = x0 + ((offset - x0) % period + period) % period; x < x1; x += period) pixels[base + x] = color;
}
/** Clears a stretch of one row. */
function clearStretch(raster, row, view, from, to) {
	const scale = raster.width / lengthOf(view);
	const x0 = Math.max(0, Math.floor((from - view.start) * scale));
	const x1 = Math.min(raster.width, Math.ceil((to - view.start) * scale));
	if (x1 > x0) raster.pixels.fill(0, row * raster.width + x0, row * raster.width + x1);
}
/** Draws a summary into `rows` rows of pixels from `row` on: as high as the busy share of each bucket, in the color of most of its time. */
function drawSummary(raster, row, rows, tile, view, from, to, paint) {
	const { width, pixels } = raster;
	const bucket = 2 ** tile.z;
	const origin = tile.i * bucket * tile.busy.length;
	const step = lengthOf(view) / width;
	const [first, last] = [Math.max(from, origin), Math.min(to, origin + bucket * tile.busy.length)];
	const [low, high] = [Math.max(0, Math.floor((first - view.start) / step)), Math.min(width, Math.ceil((last - view.start) / step))];
	for (let x = low; x < high; x++) {
		const left = view.start + x * step;
		const a = Math.max(0, Math.floor((left - origin) / bucket));
		const b = Math.min(tile.busy.length - 1, Math.max(a, Math.ceil((left + step - origin) / bucket) - 1));
		let [busy, most, sum] = [
			0,
			-1,
			0
		];
		for (let k = a; k <= b; k++) {
			const value = tile.busy[k];
			sum += value;
			if (tile.category[k] !== 255 && value >= most) [most, busy] = [value, tile.category[k]];
		}
		if (most < 0) continue;
		const share = sum / (b - a + 1) / 255;
		const tall = Math.max(1, Math.round(share * rows));
		const color = shadeOf(paint, busy, 255);
		for (let y = rows - tall; y < rows; y++) pixels[(row + y) * width + x] = color;
	}
}
/** The lowest and highest value of a counter in each column of pixels; NaN where it is not known. It keeps its value from point to point. */
var Level = class {
	view;
	width;
	low;
	high;
	value = null;
	/** column from which on nothing is known yet */
	at = 0;
	constructor(view, width) {
		this.view = view;
		this.width = width;
		this.low = new Float64Array(width).fill(NaN);
		this.high = new Float64Array(width).fill(NaN);
	}
	column(time) {
		return Math.max(0, Math.min(this.width, Math.floor((time - this.view.start) / lengthOf(this.view) * this.width)));
	}
	extend(x, low, high) {
		if (x >= this.width) return;
		if (!(this.low[x] <= low)) this.low[x] = low;
		if (!(this.high[x] >= high)) this.high[x] = high;
	}
	/** The last value holds until a time. */
	until(time) {
		const end = this.column(time);
		if (this.value !== null) for (let x = this.at; x < end; x++) this.extend(x, this.value, this.value);
		this.at = Math.max(this.at, end);
	}
	/** Points of a tile between two times, after those before it. */
	add(tile, from, to) {
		if (this.value === null && tile.before !== null) {
			this.until(from);
			this.value = tile.before;
		}
		for (let k = 0; k < tile.time.length; k++) {
			const time = tile.time[k];
			if (time >= to) break;
			if (time >= from && time >= this.view.start && time <= this.view.end) {
				this.until(time);
				const x = this.column(time);
				if (this.value !== null) this.extend(x, this.value, this.value);
				this.extend(x, tile.low[k], tile.high[k]);
			}
			this.value = tile.last[k];
		}
	}
};
/** Part of a counter's color that fills the room below its line. */
var AREA = .16;
/** Draws a counter into `rows` rows of pixels from `row` on, between two values. ratio: device pixels of a CSS pixel, of the line. */
function drawLevel(raster, row, rows, level, least, most, color, ratio) {
	const { width, pixels } = raster;
	const [r, g, b] = channels(color);
	const line = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
	const area = (Math.round(255 * AREA) << 24 | b << 16 | g << 8 | r) >>> 0;
	const thick = Math.max(1, Math.round(ratio));
	const scale = (rows - thick) / Math.max(most - least, 1e-30);
	const yOf = (value) => Math.max(0, Math.min(rows - thick, Math.round((most - value) * scale)));
	for (let x = 0; x < width; x++) {
		const [low, high] = [level.low[x], level.high[x]];
		if (!(high >= low)) continue;
		const [top, bottom] = [yOf(high), yOf(low) + thick];
		for (let y = top; y < bottom; y++) pixels[(row + y) * width + x] = line;
		for (let y = bottom; y < rows; y++) pixels[(row + y) * width + x] = area;
	}
}
/** The stretch of time that a tile is about. */
var stretchOf$1 = (tile) => {
	const width = 2 ** (tile.z + 10);
	return {
		start: tile.i * width,
		end: (tile.i + 1) * width
	};
};
/** An item at a place: its index, or -1. near: ns that a hit may miss by. */
function itemAt(tile, lane, time, near) {
	if (lane < 0 || lane >= tile.bounds.length - 1) return -1;
	const [low, high] = [tile.bounds[lane], tile.bounds[lane + 1]];
	const k = firstAfter(tile, lane, time);
	if (k < high && tile.start[k] <= time) return k;
	const after = k < high ? tile.start[k] - time : Infinity;
	const before = k > low ? time - tile.end[k - 1] : Infinity;
	if (Math.min(after, before) > near) return -1;
	return after <= before ? k : k - 1;
}
/** Candidates of one lane. y, height: of the lane in px; width: of the view. */
function collect(out, tile, lane, view, width, y, height, from, to, categories, pinned = false) {
	if (lane >= tile.bounds.length - 1) return;
	const scale = width / lengthOf(view);
	const least = 24 / scale;
	const last = tile.bounds[lane + 1];
	for (let k = firstAfter(tile, lane, Math.max(from, view.start)); k < last; k++) {
		const start = tile.start[k];
		if (start >= to || start >= view.end) break;
		const end = tile.end[k];
		if (end - start < least || tile.count[k] > 1) continue;
		const x0 = Math.max(0, (Math.max(start, from) - view.start) * scale);
		const x1 = Math.min(width, (Math.min(end, to) - view.start) * scale);
		if (x1 - x0 >= 24) out.push({
			x: x0,
			y,
			width: x1 - x0,
			height,
			name: tile.name[k],
			category: categoryOf(categories, tile.name[k]),
			event: tile.event[k],
			pinned
		});
	}
}
/** The widest ones; parts of one event that several tiles gave are joined. */
function chosen$2(all) {
	const joined = [];
	const ends = /* @__PURE__ */ new Map();
	for (const one of all) {
		const key = `${one.y}/${one.event}`;
		const before = ends.get(key);
		if (before && Math.abs(before.x + before.width - one.x) < 1.5) before.width = one.x + one.width - before.x;
		else {
			joined.push(one);
			ends.set(key, one);
		}
	}
	return joined.length <= 500 ? joined : joined.sort((a, b) => b.width - a.width).slice(0, 500);
}
/** Cuts texts to widths, by measured widths of whole texts and of single letters. */
var Cutter = class {
	measure;
	widths = /* @__PURE__ */ new Map();
	constructor(measure) {
		this.measure = measure;
	}
	widthOf(text) {
		let found = this.widths.get(text);
		if (found === void 0) {
			if (this.widths.size > 2e4) this.widths.clear();
			found = this.measure(text);
			this.widths.set(text, found);
		}
		return found;
	}
	fits(text, width) {
		return this.widthOf(text) <= width - 8;
	}
	/** A text that fits into `width` px less a little room, "" where not even a few letters do. */
	cut(text, width) {
		const room = width - 8;
		if (room < 12) return "";
		const short = text.length > 200 ? text.slice(0, 200) : text;
		if (this.widthOf(short) <= room) return short;
		let left = room - this.widthOf("…");
		let letters = 0;
		for (const letter of short) {
			left -= this.widthOf(letter);
			if (left < 0) break;
			letters += letter.length;
		}
		return letters < 2 ? "" : `${short.slice(0, letters)}…`;
	}
};
/** How long there is nothing between two events, or how far they overlap. */
function gapText(a, b) {
	const gap = Math.max(a.start, b.start) - (a.start <= b.start ? a.end : b.end);
	return gap >= 0 ? `gap ${human(gap, "ns")}` : `overlap ${human(-gap, "ns")}`;
}
// src/sections/timeline/arrange.ts
var NOTHING = {
	pinned: [],
	hidden: [],
	toggled: [],
	find: "",
	layout: ""
};
/** Streams that stay in sight in a small timeline. */
var MOST_PINNED = 2;
var RowsModel = class {
	tracks;
	write;
	arrangement = y$1(NOTHING);
	shown = O(() => rowsOf$1(this.tracks.value, this.arrangement.value));
	/** write: into the address, where there is one. */
	constructor(tracks, write) {
		this.tracks = tracks;
		this.write = write;
	}
	change(part) {
		const next = {
			...this.arrangement.peek(),
			...part
		};
		this.arrangement.value = next;
		this.write({
			pin: joinList(next.pinned),
			hide: joinList(next.hidden),
			open: joinList(next.toggled),
			lay: next.layout
		}, "quiet");
	}
	/** What the address says; what was typed to filter the rows stays. */
	read(next) {
		this.arrangement.value = {
			...next,
			find: this.arrangement.peek().find
		};
	}
	/** Of a small timeline: these rows alone and what leads to them; without any, all but counters, the fullest streams always in sight. */
	only(paths) {
		const tracks = this.tracks.peek();
		const keep = /* @__PURE__ */ new Set();
		for (const path of paths) {
			const found = trackOf$1(tracks, path);
			if (found) for (const t of chainOf(found, tracks)) keep.add(t.track);
		}
		if (!keep.size) {
			const streams = tracks.filter((t) => t.kind === "stream").sort((a, b) => b.events - a.events).slice(0, MOST_PINNED).sort((a, b) => a.track - b.track);
			this.arrangement.value = {
				...NOTHING,
				pinned: streams.map((t) => t.path),
				hidden: tracks.filter((t) => t.kind === "counter").map((t) => t.path)
			};
			return;
		}
		const workers = workersOf(tracks);
		const opened = tracks.filter((t) => keep.has(t.track) && !openAtFirst(t, workers)).map((t) => t.path);
		this.arrangement.value = {
			...NOTHING,
			hidden: tracks.filter((t) => !keep.has(t.track)).map((t) => t.path),
			toggled: opened
		};
	}
	toggle(track) {
		this.change({ toggled: toggled(this.arrangement.peek().toggled, track.path) });
	}
	pin(track) {
		this.change({ pinned: toggled(this.arrangement.peek().pinned, track.path) });
	}
	unpin() {
		this.change({ pinned: [] });
	}
	hide(track) {
		this.change({ hidden: toggled(this.arrangement.peek().hidden, track.path) });
	}
	showHidden() {
		this.change({ hidden: [] });
	}
	/** Opens all rows; where all are open, as they were at first. */
	expandAll() {
		const tracks = this.tracks.peek();
		const workers = workersOf(tracks);
		const closed = tracks.filter((t) => !openAtFirst(t, workers)).map((t) => t.path);
		const now = this.arrangement.peek().toggled;
		this.change({ toggled: closed.length && closed.every((p) => now.includes(p)) ? [] : closed });
	}
	layout(layout) {
		this.change({ layout });
	}
	filter(text) {
		this.arrangement.value = {
			...this.arrangement.peek(),
			find: text
		};
	}
	/** Opens and unhides what a track is in. */
	reveal(track) {
		const tracks = this.tracks.peek();
		const how = this.arrangement.peek();
		const workers = workersOf(tracks);
		const chain = chainOf(track, tracks);
		const closed = chain.filter((t) => openAtFirst(t, workers) === how.toggled.includes(t.path));
		const hidden = chain.some((t) => how.hidden.includes(t.path));
		if (!closed.length && !hidden) return;
		let next = how.toggled;
		for (const t of closed) next = toggled(next, t.path);
		this.change({
			toggled: next,
			hidden: how.hidden.filter((p) => !chain.some((t) => t.path === p))
		});
	}
	rowOf(track) {
		const { pinned, rows } = this.shown.peek();
		return pinned.find((r) => r.track.track === track) ?? rows.find((r) => r.track.track === track) ?? null;
	}
	/** Workers, processes and devices that hold events. */
	groups() {
		return this.tracks.peek().filter((t) => isGroup(t) && t.events > 0);
	}
};
// src/sections/timeline/cache.ts
var MOST_BYTES = 64 * 2 ** 20;
var key = (track, z, i) => `${track}/${z}/${i}`;
var TileCache = class {
	top;
	most;
	tiles = /* @__PURE__ */ new Map();
	pinned = /* @__PURE__ */ new Map();
	bytes = 0;
	pinnedBytes = 0;
	/** top: level at which one tile holds the whole recording; tiles of it stay. */
	constructor(top, most = MOST_BYTES) {
		this.top = top;
		this.most = most;
	}
	get size() {
		return this.tiles.size + this.pinned.size;
	}
	put(tile) {
		const at = key(tile.track, tile.z, tile.i);
		if (tile.z >= this.top) {
			this.pinnedBytes += tile.bytes - (this.pinned.get(at)?.bytes ?? 0);
			this.pinned.set(at, tile);
			return;
		}
		this.bytes += tile.bytes - (this.tiles.get(at)?.bytes ?? 0);
		this.tiles.delete(at);
		this.tiles.set(at, tile);
		for (const [old, one] of this.tiles) {
			if (this.bytes + this.pinnedBytes <= this.most) break;
			this.tiles.delete(old);
			this.bytes -= one.bytes;
		}
	}
	/** A tile, now the one used last; null when it is not here. */
	get(track, z, i) {
		const at = key(track, z, i);
		if (z >= this.top) return this.pinned.get(at) ?? null;
		const found = this.tiles.get(at);
		if (!found) return null;
		this.tiles.delete(at);
		this.tiles.set(at, found);
		return found;
	}
	has(track, z, i) {
		return this.pinned.has(key(track, z, i)) || this.tiles.has(key(track, z, i));
	}
	covering(track, z, i) {
		const own = this.get(track, z, i);
		if (own) return {
			tile: own,
			finer: [],
			sharp: true
		};
		let coarse = null;
		for (let level = z + 1, at = Math.floor(i / 2); level <= this.top; level++, at = Math.floor(at / 2)) {
			const found = this.get(track, level, at);
			if (found?.complete) return {
				tile: found,
				finer: [],
				sharp: true
			};
			coarse ??= found;
		}
		const finer = [];
		if (!coarse || coarse.z > z + 1) for (let down = 1; down <= 2 && z - down >= 0 && !finer.length; down++) {
			const many = 2 ** down;
			for (let k = 0; k < many; k++) {
				const found = this.get(track, z - down, i * many + k);
				if (found) finer.push(found);
			}
		}
		return {
			tile: coarse,
			finer,
			sharp: false
		};
	}
	clear() {
		this.tiles.clear();
		this.pinned.clear();
		this.bytes = this.pinnedBytes = 0;
	}
};
// src/sections/timeline/find.ts
var NO_SEARCH = {
	text: "",
	wrong: "",
	found: null,
	hits: null
};
var Finder = class {
	of;
	state = y$1(NO_SEARCH);
	asked = new AbortController();
	/** start of the hit that was gone to */
	last = null;
	constructor(of) {
		this.of = of;
	}
	stop() {
		this.asked.abort();
	}
	async find(text, how = "replace") {
		this.asked.abort();
		const stop = (this.asked = new AbortController()).signal;
		this.of.write({ q: text }, how);
		this.last = null;
		if (!text) {
			this.state.value = NO_SEARCH;
			return;
		}
		const names = this.of.names();
		const pattern = patternOf(text);
		const few = names.text.length <= MOST_SEARCHED;
		const ids = few ? matching(names, pattern) : [];
		const wrong = pattern.wrong || (!pattern.plain && (!few || ids.length > 2e3) ? `${few ? "more than 2,000 names match" : "too many names for a regular expression"}: search for plain text` : "");
		this.state.value = {
			text,
			wrong,
			found: few && names.text.length ? new Set(ids) : null,
			hits: null
		};
		if (wrong || few && names.text.length && !ids.length) {
			this.state.value = {
				...this.state.peek(),
				hits: wrong ? null : {
					total: 0,
					tracks: [],
					histogram: [],
					hits: []
				}
			};
			return;
		}
		const hits = await this.hits({}, stop);
		if (hits && !stop.aborted) this.state.value = {
			...this.state.peek(),
			hits
		};
	}
	/** Searches again once the names have come. */
	again() {
		if (this.state.peek().text) this.find(this.state.peek().text, "quiet");
	}
	async hits(query, stop) {
		const { text, found } = this.state.peek();
		try {
			return await getHits(this.of.places(), {
				...patternOf(text).plain ? { text } : { names: [...found ?? []].join(",") },
				limit: 1,
				...query
			}, stop);
		} catch (error) {
			if (stop.aborted) return null;
			this.state.value = {
				...this.state.peek(),
				wrong: error instanceof ApiError ? error.message : "the search failed"
			};
			return null;
		}
	}
	/** Searches for a name and selects its first event from a time on. */
	async nameFrom(name, time) {
		await this.find(name, "quiet");
		if (this.state.peek().text === name) await this.step(1, time);
	}
	/** Selects the next hit after the selection, else from the time under the pointer or the begin of the view; from: of a time from which on it is looked for. */
	async step(direction, from) {
		const { text, wrong } = this.state.peek();
		if (!text || wrong) return;
		const { after: start, selected } = from === void 0 ? this.of.from() : {
			after: from,
			selected: false
		};
		const after = this.last ?? start;
		const query = {
			direction: direction > 0 ? "next" : "previous",
			after_ns: Math.round(direction > 0 ? after + (this.last === null && !selected ? 0 : 1) : after)
		};
		let found = await this.hits(query, this.asked.signal);
		if (found && !found.hits.length) found = await this.hits({
			...query,
			after_ns: direction > 0 ? 0 : Math.round(this.of.end()) + 1
		}, this.asked.signal);
		const hit = found?.hits[0];
		if (!hit) return;
		this.last = hit.start_ns;
		this.of.go(hit);
	}
};
var MOST_TRACKS = 24;
var MOST_TILES = 8;
/** ms of decoding until the page may do something else. */
var SLICE = 4;
/** Requests of such tiles at one time, when all others are here. */
var MOST_AHEAD = 2;
var keyOf = (track, z, i) => `${track}/${z}/${i}`;
/** Requests of at most 24 tracks and eight tiles each that bring what is missing, in order of rank. */
function plan(wanted, missing) {
	const out = [];
	for (const one of [...wanted].sort((a, b) => a.rank - b.rank)) for (let from = one.from; from <= one.to; from += MOST_TILES) {
		const to = Math.min(one.to, from + MOST_TILES - 1);
		const lacking = one.tracks.filter((t) => {
			for (let i = from; i <= to; i++) if (missing(t, one.z, i)) return true;
			return false;
		});
		for (let k = 0; k < lacking.length; k += MOST_TRACKS) out.push({
			...one,
			from,
			to,
			tracks: lacking.slice(k, k + MOST_TRACKS)
		});
	}
	return out;
}
var Loader = class {
	source;
	flights = /* @__PURE__ */ new Set();
	queue = [];
	/** tiles that the server could not make, or a saved page does not have: not asked for again */
	broken = /* @__PURE__ */ new Set();
	stopped = false;
	most = 4;
	constructor(source) {
		this.source = source;
	}
	/** Whether tiles of what is in view are on their way. */
	get busy() {
		return this.queue.some((w) => w.rank < 2) || [...this.flights].some((f) => f.rank < 2 && !f.stop.signal.aborted);
	}
	/** Replaces what is wanted. level: of the view; tiles on their way of this one and its neighbors are still of use, others are cancelled. */
	want(wanted, level, moving = false) {
		if (this.stopped) return;
		this.most = moving ? 1 : 4;
		const levels = new Set(wanted.map((w) => w.z));
		for (const flight of this.flights) if (!levels.has(flight.z) && Math.abs(flight.z - level) > 1) flight.stop.abort();
		const flying = (key) => [...this.flights].some((f) => !f.stop.signal.aborted && f.keys.has(key));
		this.queue = plan(wanted, (t, z, i) => !this.source.has(t, z, i) && !flying(keyOf(t, z, i)) && !this.broken.has(keyOf(t, z, i)));
		if (this.queue[0] && this.queue[0].rank < 2) {
			for (const flight of this.flights) if (flight.rank >= 2) flight.stop.abort();
		}
		this.next();
	}
	stop() {
		this.stopped = true;
		this.queue = [];
		for (const flight of this.flights) flight.stop.abort();
	}
	next() {
		for (;;) {
			const flying = [...this.flights].filter((f) => !f.stop.signal.aborted);
			const first = this.queue[0];
			if (!first || flying.length >= this.most) return;
			if (first.rank >= 2 && (flying.length >= MOST_AHEAD || flying.some((f) => f.rank < 2))) return;
			this.send(this.queue.shift());
		}
	}
	async send({ z, from, to, tracks, rank }) {
		const keys = /* @__PURE__ */ new Set();
		for (let i = from; i <= to; i++) for (const t of tracks) keys.add(keyOf(t, z, i));
		const flight = {
			z,
			rank,
			keys,
			stop: new AbortController()
		};
		this.flights.add(flight);
		try {
			const buffer = await this.source.get(z, from, to, tracks, flight.stop.signal);
			let began = performance.now();
			for (const tile of readTiles(buffer)) {
				if (flight.stop.signal.aborted) return;
				this.source.arrived(tile);
				keys.delete(keyOf(tile.track, tile.z, tile.i));
				if (performance.now() - began > SLICE) {
					await new Promise((done) => setTimeout(done, 0));
					began = performance.now();
				}
			}
			for (let i = from; i <= to; i++) for (const t of tracks) if (keys.has(keyOf(t, z, i)) && !this.source.has(t, z, i)) this.broken.add(keyOf(t, z, i));
		} catch (error) {
			if (!flight.stop.signal.aborted) {
				for (const key of keys) this.broken.add(key);
				this.source.failed(error);
			}
		} finally {
			this.flights.delete(flight);
			if (!this.stopped) {
				this.source.settled();
				this.next();
			}
		}
	}
	/** Tiles that failed may be asked for again. */
	forgive() {
		this.broken.clear();
	}
};
// src/sections/timeline/path.ts
/** ms without a change of the view before it is asked for */
var REST = 120;
var HALO = 1;
/** px between two arrows: closer ones would be a block of color */
var APART = 3;
/** Stretches of the path, in order of time. */
function stretchesOf(flows) {
	return flows.length ? [flows[0].source, ...flows.map((f) => f.target)] : [];
}
/** Whether what was asked for shows a view as well as a new answer would. */
function covers(asked, view) {
	if (!asked || view.start < asked.start || view.end > asked.end) return false;
	return (view.end - view.start) * 6 >= asked.end - asked.start;
}
var PathModel = class {
	from;
	on = y$1(false);
	flows = y$1([]);
	/** whether there is one to draw: a saved page may hold none */
	there = hasPath();
	asked = null;
	ask = new AbortController();
	timer = 0;
	constructor(from) {
		this.from = from;
	}
	/** Follows the view; returns how to stop. */
	start() {
		const end = x$1(() => {
			const view = this.from.view();
			window.clearTimeout(this.timer);
			if (!this.on.value || !this.there || !this.from.ready()) return this.forget();
			if (inFile ? !this.asked : !covers(this.asked, view)) this.timer = window.setTimeout(() => void this.load(view), REST);
		});
		return () => {
			end();
			window.clearTimeout(this.timer);
			this.ask.abort();
		};
	}
	/** Other rows, or other workers. */
	forget() {
		this.asked = null;
		this.ask.abort();
		if (this.flows.peek().length) this.flows.value = [];
	}
	async load(view) {
		this.ask.abort();
		const stop = (this.ask = new AbortController()).signal;
		const length = view.end - view.start;
		const [start, end] = [Math.floor(view.start - length), Math.ceil(view.end + length)];
		try {
			const found = await getPath(this.from.at(), {
				start_ns: start,
				end_ns: end
			}, stop);
			if (stop.aborted) return;
			this.asked = {
				start,
				end
			};
			this.flows.value = found.flows;
		} catch (error) {
			if (!stop.aborted) this.from.failed(error);
		}
	}
};
function drawPath(ctx, flows, on) {
	const bars = [];
	const arrows = [];
	let last = null;
	let before = -3;
	for (const one of stretchesOf(flows)) {
		const [x0, x1, y] = [
			on.x(one.start_ns),
			on.x(one.end_ns),
			on.y(one.track)
		];
		if (y !== null && x1 >= 0 && x0 <= on.width) {
			bars.push([
				Math.max(x0, 0),
				Math.min(Math.max(x1, x0 + 1), on.width),
				y
			]);
			if (last && last.y !== null && last.y !== y && last.end === one.start_ns && x0 - before >= APART) {
				arrows.push([
					Math.round(x0),
					last.y,
					y
				]);
				before = x0;
			}
		}
		last = {
			end: one.end_ns,
			y
		};
	}
	ctx.fillStyle = on.halo;
	for (const [x0, x1, y] of bars) ctx.fillRect(x0, y - HALO, x1 - x0, 6);
	ctx.fillStyle = on.color;
	for (const [x, from, to] of arrows) {
		const [top, bottom] = [Math.min(from, to), Math.max(from, to)];
		ctx.fillRect(x, top, 1, bottom - top + 4);
		const [tip, back] = to > from ? [to, to - 5] : [to + 4, to + 4 + 5];
		ctx.beginPath();
		ctx.moveTo(x + .5, tip);
		ctx.lineTo(x - 2.5, back);
		ctx.lineTo(x + 3.5, back);
		ctx.fill();
	}
	for (const [x0, x1, y] of bars) ctx.fillRect(x0, y, x1 - x0, 4);
}
// src/sections/timeline/model.ts
var RETRY = 300;
/** px of the canvas that an event is given when it is looked at from afar. */
var LOOK = .25;
var TimelineModel = class {
	section;
	at;
	embedded;
	shape = y$1(null);
	error = y$1(null);
	names = y$1(NO_NAMES);
	window = y$1({
		start: 0,
		end: 1
	});
	hover = y$1(null);
	reading = y$1(null);
	detail = y$1(null);
	/** all of the event under the pointer, a moment later */
	hovered = y$1(null);
	selected = y$1(null);
	area = y$1(null);
	marks = y$1([]);
	/** events chosen with Ctrl, the last two of them: the gap between */
	compared = y$1([]);
	/** a notice under the tools: what a link asked for and is not here */
	notice = y$1("");
	waiting = y$1(false);
	tally = y$1({
		items: 0,
		events: 0,
		more: false
	});
	/** path of the row that keys are at, "" none */
	cursor = y$1("");
	/** kinds of work also as stripes and letters */
	patterns = y$1(false);
	paneOpen = y$1(true);
	scroll = y$1(0);
	/** px of the plot */
	width = y$1(1e3);
	height = y$1(400);
	/** grows with every tile that arrives */
	drawn = y$1(0);
	tracks = O(() => this.shape.value?.tracks ?? []);
	all = O(() => ({
		start: 0,
		end: Math.max(this.shape.value?.span_ns ?? 1, 1)
	}));
	/** of the first worker: what stands in the head */
	steps = O(() => this.shape.value?.steps.filter((s) => s.worker === 0) ?? []);
	phases = O(() => this.shape.value?.phases.filter((p) => p.worker === 0) ?? []);
	/** last moment of each worker */
	ends = O(() => {
		const out = [];
		for (const t of this.tracks.value) out[t.worker] = Math.max(out[t.worker] ?? 0, t.last_ns);
		return out;
	});
	rows = new RowsModel(this.tracks, (part, how) => this.write(part, how));
	finder = new Finder({
		places: () => this.at,
		names: () => this.names.peek(),
		from: () => {
			const event = this.selected.peek();
			return {
				after: event?.start ?? this.pointer ?? this.window.peek().start,
				selected: !!event
			};
		},
		end: () => this.all.peek().end,
		go: (event) => this.go(event),
		write: (part, how) => this.write(part, how)
	});
	path = new PathModel({
		at: () => this.at,
		view: () => this.window.value,
		ready: () => !!this.shape.value,
		failed: (error) => this.failed(error)
	});
	cache = new TileCache(0);
	loader = null;
	places = new Places();
	undo = [];
	ask = new AbortController();
	askEvent = new AbortController();
	askHover = new AbortController();
	wrote = "";
	/** why what the address asks for cannot be, until it is said */
	refused = "";
	/** embedded: a small one inside another page, which leaves the address alone. */
	constructor(section, at, embedded) {
		this.section = section;
		this.at = at;
		this.embedded = embedded;
	}
	start() {
		this.load();
		this.undo.push(this.path.start());
		if (this.embedded) return;
		this.undo.push(x$1(() => {
			const keys = view.value.timeline;
			const text = JSON.stringify(keys);
			if (text === this.wrote || !this.shape.value) return;
			this.wrote = text;
			f$1(() => this.read(keys));
		}));
	}
	stop() {
		this.ask.abort();
		this.askEvent.abort();
		this.finder.stop();
		this.askHover.abort();
		this.loader?.stop();
		for (const end of this.undo) end();
	}
	async load() {
		this.ask.abort();
		const stop = (this.ask = new AbortController()).signal;
		try {
			const shape = await this.untilRead(() => getTimeline(this.at, stop), stop);
			if (stop.aborted || !shape) return;
			this.loader?.stop();
			this.path.forget();
			const cache = this.cache = new TileCache(topOf(shape.span_ns));
			this.loader = new Loader({
				get: (z, from, to, tracks, signal) => getTiles(this.at, {
					z,
					i: from === to ? String(from) : `${from}-${to}`,
					tracks: tracks.join(","),
					fp: shape.fingerprint
				}, signal),
				has: (track, z, i) => cache.covering(track, z, i).sharp,
				arrived: (tile) => cache.put(tile),
				settled: () => {
					this.drawn.value++;
				},
				failed: (error) => this.failed(error)
			});
			r(() => {
				this.error.value = null;
				this.shape.value = shape;
				const keys = this.embedded ? {} : view.peek().timeline;
				this.wrote = JSON.stringify(keys);
				this.read(keys);
			});
			getTimelineNames(this.at, shape.fingerprint, stop).then((names) => {
				this.names.value = new NameTable(names);
				this.finder.again();
			}, (error) => this.failed(error));
		} catch (error) {
			if (stop.aborted) return;
			if (error instanceof ApiError && error.status === 400 && this.at.al) {
				this.refused = `The workers cannot be aligned like this: ${error.body.message}. ${error.body.hint ?? ""}`;
				this.align("");
			} else this.failed(error);
		}
	}
	async untilRead(get, stop) {
		for (;;) try {
			return await get();
		} catch (error) {
			if (stop.aborted) return null;
			if (!(error instanceof ApiError) || !error.loading) throw error;
			await new Promise((done) => window.setTimeout(done, RETRY));
		}
	}
	failed(error) {
		if (error instanceof ApiError && error.status === 409) return void this.load();
		if (error instanceof ApiError && error.loading) {
			window.setTimeout(() => {
				this.loader?.forgive();
				this.drawn.value++;
			}, RETRY);
			return;
		}
		if (error instanceof ApiError && error.body.code === "not_in_file" && this.shape.peek()) {
			this.notice.value = `This file has what is drawn, not all that is known of each event. ${error.body.hint ?? ""}`;
			return;
		}
		this.error.value = error instanceof ApiError ? error : new ApiError({
			code: "error",
			message: String(error instanceof Error ? error.message : error)
		}, 0);
	}
	again() {
		this.error.value = null;
		this.loader?.forgive();
		if (this.shape.peek()) this.drawn.value++;
		else this.load();
	}
	/** Other workers, or another window to open with. */
	update(section, at) {
		const elsewhere = JSON.stringify(at) !== JSON.stringify(this.at);
		const other = section.start_ns !== this.section.start_ns || section.end_ns !== this.section.end_ns;
		this.section = section;
		this.at = at;
		if (elsewhere) this.load();
		else if (other && this.shape.peek()) {
			this.leave();
			this.window.value = this.opening();
			if (!this.embedded) this.write({ t: "" }, "quiet");
		}
	}
	/** Another way to put the clocks of several workers beside each other. */
	align(al) {
		this.write({
			al,
			t: "",
			area: ""
		}, "quiet");
		this.update(this.section, {
			...this.at,
			al
		});
	}
	/** Requests tiles. Returns whether some of what is in view are on their way. */
	want(wanted, level, moving) {
		this.loader?.want(wanted, level, moving);
		return this.loader?.busy ?? false;
	}
	/** The window of the section: of its step, else where nearly all events are. */
	opening() {
		const { start_ns: start, end_ns: end } = this.section;
		const all = this.all.peek();
		if (typeof start === "number" && typeof end === "number" && end > start) return around({
			start,
			end
		}, all, this.embedded ? .04 : .01);
		const [low, high] = this.shape.peek()?.focus ?? [0, all.end];
		return high > low ? inside$1({
			start: low,
			end: high
		}, all) : all;
	}
	read(keys) {
		r(() => {
			const all = this.all.peek();
			const lost = [];
			if (this.embedded) this.rows.only(this.section.tracks ?? []);
			else this.rows.read(readArrangement(keys));
			const window = readSpan(keys["t"] ?? "");
			this.window.value = window ? inside$1(window, all) : this.opening();
			if (window && (window.start >= all.end || window.end <= 0)) lost.push(`the window ${spanText(window)} ns`);
			this.marks.value = readMarks(keys["mk"] ?? "");
			this.path.on.value = this.embedded ? !!this.section.path : keys["cp"] === "1";
			const area = readArea(keys["area"] ?? "");
			this.area.value = area;
			const gone = area?.paths.filter((p) => !trackOf$1(this.tracks.peek(), p)) ?? [];
			if (gone.length) lost.push(`the row ${gone[0]}`);
			const event = readEvent(keys["ev"] ?? "");
			if (event && !trackOf$1(this.tracks.peek(), event.path)) lost.push(`the row ${event.path}`);
			else this.fetchEvent(event, !window);
			this.scroll.value = Number(keys["y"]) || 0;
			if ((keys["q"] ?? "") !== this.finder.state.peek().text) this.finder.find(keys["q"] ?? "", "quiet");
			this.notice.value = lost.length ? `Not found here: ${lost.join(", ")}. What is shown is the nearest there is.` : this.refused;
			this.refused = "";
		});
	}
	/** Writes keys of the address: changes of the view after a rest, selections as a new place. */
	write(part, how) {
		if (this.embedded) return;
		const next = {
			...view.peek().timeline,
			...part
		};
		this.wrote = JSON.stringify(next);
		changeTimeline(part, how);
		this.wrote = JSON.stringify(view.peek().timeline);
	}
	/** Draws the critical path, or no more. */
	togglePath() {
		this.path.on.value = !this.path.on.peek();
		this.write({ cp: this.path.on.peek() ? "1" : "" }, "replace");
	}
	/** Shows another stretch of time; `place`: Alt + left comes back from it. */
	show(next, place = false) {
		const now = this.window.peek();
		if (place) this.leave();
		const to = inside$1(next, this.all.peek());
		if (to.start === now.start && to.end === now.end) return;
		this.window.value = to;
		this.write({ t: spanText(to) }, "replace");
	}
	leave() {
		this.places.leave(this.window.peek());
	}
	history(direction) {
		const found = this.places.step(direction, this.window.peek());
		if (found) this.show(found);
	}
	zoom(factor, at) {
		const now = this.window.peek();
		this.show(zoomed(now, factor, at ?? this.pointer ?? (now.start + now.end) / 2, this.all.peek()));
	}
	pan(part) {
		this.show(moved(this.window.peek(), part * lengthOf(this.window.peek()), this.all.peek()));
	}
	everything() {
		this.show(this.all.peek(), true);
	}
	/** Zooms to the selection; where it fills the view already, to the window that was opened with. */
	fit() {
		const part = this.selection();
		if (!part) return this.show(this.opening(), true);
		const to = around(part, this.all.peek());
		const now = this.window.peek();
		const same = Math.abs(now.start - to.start) + Math.abs(now.end - to.end) < lengthOf(to) * .01;
		this.show(same ? inside$1(part, this.all.peek()) : to, true);
	}
	/** The area, else the event that is selected. */
	selection() {
		const [area, event] = [this.area.peek(), this.selected.peek()];
		return area ?? (event && {
			start: event.start,
			end: event.start + event.duration
		});
	}
	/** time under the pointer */
	pointer = null;
	get highlight() {
		return this.section.highlight ?? [];
	}
	/** Notes how far the rows are scrolled. */
	scrolled(top) {
		this.scroll.value = Math.round(top);
		this.write({ y: top >= 1 ? String(Math.round(top)) : "" }, "replace");
	}
	/** Brings a stretch into view without losing the place: moved if it is big enough to see, else zoomed to. */
	look(part) {
		const now = this.window.peek();
		const seen = part.start >= now.start && part.end <= now.end;
		const px = lengthOf(part) / lengthOf(now) * this.width.peek();
		if (seen && px >= 2) return;
		if (px >= 2 && lengthOf(part) < lengthOf(now)) {
			const start = part.start - (lengthOf(now) - lengthOf(part)) / 2;
			this.show({
				start,
				end: start + lengthOf(now)
			}, true);
		} else this.show(around(part, this.all.peek(), .5 / LOOK - .5), true);
	}
	trackAt(path) {
		return trackOf$1(this.tracks.peek(), path);
	}
	/** known: all of that event, where it is here already. */
	select(event, how = "push", known) {
		if (!event || this.compared.peek().length > 1) this.compared.value = [];
		this.write({ ev: event ? eventText(event) : "" }, how);
		this.fetchEvent(event, false, known);
	}
	async fetchEvent(event, look, known) {
		this.askEvent.abort();
		const stop = (this.askEvent = new AbortController()).signal;
		this.selected.value = event;
		const track = event && this.trackAt(event.path);
		if (!event || !track) {
			this.detail.value = null;
			return;
		}
		if (look) this.look({
			start: event.start,
			end: event.start + event.duration
		});
		this.rows.reveal(track);
		try {
			const found = known ?? await getEvent(this.at, {
				track: track.track,
				start_ns: event.start,
				duration_ns: event.duration
			}, stop);
			if (stop.aborted) return;
			r(() => {
				this.detail.value = found;
				if (!found.exact) {
					this.notice.value = "Not found here: the event of this link. Selected is the nearest one of its row.";
					this.selected.value = {
						...event,
						start: found.start_ns,
						duration: found.duration_ns
					};
					this.look({
						start: found.start_ns,
						end: found.start_ns + found.duration_ns
					});
				}
			});
		} catch (error) {
			if (!stop.aborted) this.failed(error);
		}
	}
	/** Selects what an item shows; one of several events is zoomed to until they stand apart. */
	async pick(item) {
		if (item.count > 1) {
			const now = this.window.peek();
			const span = {
				start: item.start,
				end: item.end
			};
			if (lengthOf(span) > 40 && lengthOf(span) < lengthOf(now)) return this.show(around(span, this.all.peek(), .5), true);
		}
		const stop = (this.askEvent = new AbortController()).signal;
		try {
			const found = await getEvent(this.at, {
				track: item.track.track,
				event: item.event
			}, stop);
			this.compared.value = [];
			this.select({
				path: item.track.path,
				start: found.start_ns,
				duration: found.duration_ns
			}, "push", found);
		} catch (error) {
			if (!stop.aborted) this.failed(error);
		}
	}
	/** Requests what is known of the event under the pointer, if it is still there. */
	async hoverDetail(item) {
		if (this.hover.peek()?.event !== item.event || this.hover.peek()?.track !== item.track) return;
		this.askHover.abort();
		const stop = (this.askHover = new AbortController()).signal;
		try {
			const found = await getEvent(this.at, {
				track: item.track.track,
				event: item.event
			}, stop);
			if (!stop.aborted) this.hovered.value = found;
		} catch (error) {
			if (!stop.aborted && !(error instanceof ApiError)) throw error;
		}
	}
	/** Adds an event to those compared; the gap between the last two is shown. */
	async compare(item) {
		try {
			const found = await getEvent(this.at, {
				track: item.track.track,
				event: item.event
			});
			const one = {
				path: item.track.path,
				start: found.start_ns,
				duration: found.duration_ns
			};
			const before = this.compared.peek().length ? this.compared.peek() : this.selected.peek() ? [this.selected.peek()] : [];
			this.compared.value = [...before, one].slice(-2);
		} catch (error) {
			this.failed(error);
		}
	}
	/** Measures from the selected event; where it has been done from another one, the gap between both is shown. */
	measure() {
		const event = this.selected.peek();
		if (!event) return;
		const from = this.compared.peek();
		const again = from.length === 1 && eventText(from[0]) === eventText(event);
		this.compared.value = again ? [] : from.length === 1 ? [from[0], event] : [event];
	}
	choose(area, how = "push") {
		this.area.value = area;
		this.write({ area: area ? areaText(area) : "" }, how);
	}
	/** The next event of the lane, or the one before. */
	async beside(direction) {
		const now = this.detail.peek();
		if (!now) return;
		const end = now.start_ns + now.duration_ns;
		const lane = {
			track: now.track,
			lane: now.lane
		};
		try {
			if (direction > 0) {
				const { events } = await getEvents(this.at, {
					...lane,
					start_ns: end,
					end_ns: this.all.peek().end + 1,
					limit: 3
				});
				this.go(events.find((e) => e.event !== now.event && e.start_ns >= now.start_ns));
			} else {
				const { total } = await getEvents(this.at, {
					...lane,
					start_ns: 0,
					end_ns: Math.max(now.start_ns, 0),
					limit: 1
				});
				if (!total) return;
				const { events } = await getEvents(this.at, {
					...lane,
					start_ns: 0,
					end_ns: now.start_ns,
					cursor: String(total - 1),
					limit: 1
				});
				this.go(events[0]);
			}
		} catch (error) {
			this.failed(error);
		}
	}
	parent() {
		this.go(this.detail.peek()?.parents[0]);
	}
	async child() {
		const now = this.detail.peek();
		if (!now?.children.count) return;
		try {
			const { events } = await getEvents(this.at, {
				track: now.track,
				lane: now.lane + 1,
				start_ns: now.start_ns,
				end_ns: now.start_ns + Math.max(now.duration_ns, 1),
				limit: 1
			});
			this.go(events[0]);
		} catch (error) {
			this.failed(error);
		}
	}
	/** Follows the first link out of the event, or into it. */
	flow(direction) {
		const now = this.detail.peek();
		const found = now?.flows.find((f) => direction > 0 ? f.source.event === now.event && f.source.track === now.track : f.target.event === now.event && f.target.track === now.track);
		const to = found && (direction > 0 ? found.target : found.source);
		if (to) this.go({
			track: to.track,
			start_ns: to.start_ns,
			duration_ns: to.end_ns - to.start_ns
		});
	}
	/** The other end of a link: of one out of the selected event its target, else where it comes from. */
	follow(flow) {
		const now = this.detail.peek();
		const to = now && flow.source.event === now.event && flow.source.track === now.track ? flow.target : flow.source;
		this.go({
			track: to.track,
			start_ns: to.start_ns,
			duration_ns: to.end_ns - to.start_ns
		});
	}
	/** Selects the first event in view of the row under the cursor of the keys, else of the first row with events. */
	async first() {
		const rows = [...this.rows.shown.peek().pinned, ...this.rows.shown.peek().rows].filter((r) => r.lanes > 0);
		const row = rows.find((r) => r.track.path === this.cursor.peek()) ?? rows[0];
		const { start, end } = this.window.peek();
		if (!row) return;
		try {
			const { events } = await getEvents(this.at, {
				track: row.track.track,
				start_ns: Math.floor(start),
				end_ns: Math.ceil(end),
				limit: 1
			});
			this.go(events[0]);
		} catch (error) {
			this.failed(error);
		}
	}
	/** The view as an area. */
	chooseView() {
		const now = this.window.peek();
		const start = Math.max(0, Math.round(now.start));
		this.choose({
			start,
			end: Math.max(start + 1, Math.round(now.end)),
			paths: []
		});
	}
	/** The selected event as an area on its row. */
	chooseEvent() {
		const event = this.selected.peek();
		if (event) this.choose({
			start: event.start,
			end: event.start + Math.max(event.duration, 1),
			paths: [event.path]
		});
	}
	go(to) {
		const track = to && this.tracks.peek()[to.track];
		if (!to || !track) return;
		this.select({
			path: track.path,
			start: to.start_ns,
			duration: to.duration_ns
		});
		this.look({
			start: to.start_ns,
			end: to.start_ns + to.duration_ns
		});
	}
	/** Marks a time, or takes its mark away. */
	mark(time) {
		const at = Math.round(time);
		const near = lengthOf(this.window.peek()) / Math.max(this.width.peek(), 1) * 4;
		const old = this.marks.peek().find((m) => Math.abs(m - at) <= near);
		this.marks.value = old === void 0 ? [...this.marks.peek(), at].sort((a, b) => a - b) : this.marks.peek().filter((m) => m !== old);
		this.write({ mk: this.marks.peek().join(",") }, "quiet");
	}
	markMiddle() {
		this.mark((this.window.peek().start + this.window.peek().end) / 2);
	}
	nextMark() {
		const marks = this.marks.peek();
		if (!marks.length) return;
		const now = this.window.peek();
		const middle = (now.start + now.end) / 2;
		const next = marks.find((m) => m > middle + lengthOf(now) * .001) ?? marks[0];
		this.show({
			start: next - lengthOf(now) / 2,
			end: next + lengthOf(now) / 2
		});
	}
	/** Numbers of the rows that an area names; none for all. */
	tracksOf(area) {
		return area.paths.flatMap((p) => this.trackAt(p)?.track ?? []);
	}
};
// src/sections/timeline/wanted.ts
/** Level of the tiles of a view. */
var levelIn = (s) => Math.min(levelOf(s.view, s.width), s.cache.top);
/** Tracks of rows that have something to draw. */
var tracksIn = (rows) => rows.filter((row) => row.lanes || row.group || row.track.kind === "counter").map((row) => row.track.track);
/** Tiles that a view lacks: those that show all of a row, then those of its own level. */
function lacking(s) {
	const z = levelIn(s);
	const [first, last] = tilesOf(s.view, z, s.span);
	const seen = tracksIn(placed(s.shown, s.scroll, s.height).map(({ row }) => row));
	const overview = seen.filter((track) => !s.cache.has(track, s.cache.top, 0));
	const out = overview.length ? [{
		z: s.cache.top,
		from: 0,
		to: 0,
		tracks: overview,
		rank: 0
	}] : [];
	const tracks = /* @__PURE__ */ new Set();
	let [from, to] = [last, first];
	for (const track of seen) for (let i = first; i <= last; i++) {
		if (s.cache.covering(track, z, i).sharp) continue;
		tracks.add(track);
		[from, to] = [Math.min(from, i), Math.max(to, i)];
	}
	if (tracks.size) out.push({
		z,
		from,
		to,
		tracks: [...tracks].sort((a, b) => a - b),
		rank: 1
	});
	return out;
}
/** Tiles that are likely to be wanted next: one on each side, those of the rows a screen above and below, and nearer ones at the pointer. */
function ahead(s, pointer) {
	const z = levelIn(s);
	const [first, last] = tilesOf(s.view, z, s.span);
	const most = Math.floor(s.span / 2 ** (z + 10));
	const seen = tracksIn(placed(s.shown, s.scroll, s.height).map(({ row }) => row));
	const [from, to] = visible(s.shown.rows, s.scroll - s.height, s.scroll + 2 * s.height);
	const near = tracksIn(s.shown.rows.slice(from, to)).filter((t) => !seen.includes(t));
	const out = [];
	for (const i of [first - 1, last + 1]) if (i >= 0 && i <= most) out.push({
		z,
		from: i,
		to: i,
		tracks: seen,
		rank: 2
	});
	if (near.length) out.push({
		z: s.cache.top,
		from: 0,
		to: 0,
		tracks: near,
		rank: 2
	}, {
		z,
		from: first,
		to: last,
		tracks: near,
		rank: 2
	});
	const i = Math.floor(pointer / 2 ** (z - 1 + 10));
	if (z > 0 && i >= 0 && i * 2 ** (z - 1 + 10) <= s.span) out.push({
		z: z - 1,
		from: i,
		to: i,
		tracks: seen,
		rank: 3
	});
	return out.filter((one) => one.tracks.length);
}
// src/sections/timeline/draw.ts
var FONT = "11px system-ui, -apple-system, \"Segoe UI\", Roboto, \"Noto Sans\", sans-serif";
var CURVE = 40;
/** px of the name at an end of a link that is out of view, at least */
var STUB = 80;
/** Points of a Bezier curve, without its very ends, where the events are. */
function curve(a, b, c, d) {
	return Array.from({ length: 37 }, (_, k) => {
		const t = (k + 2) / CURVE;
		const at = (i) => (1 - t) ** 3 * a[i] + 3 * (1 - t) ** 2 * t * b[i] + 3 * (1 - t) * t ** 2 * c[i] + t ** 3 * d[i];
		return [at(0), at(1)];
	});
}
/** Rows of pixels of a summary. */
var TALL = 18;
var Painter = class {
	strip = document.createElement("canvas");
	stripContext = this.strip.getContext("2d", { willReadFrequently: false });
	image = null;
	cutter = null;
	arrows = [];
	dashed = /* @__PURE__ */ new Map();
	/** Draws a frame with the tiles that are here. Returns how many items it has. */
	draw(ctx, s) {
		const { ratio, width, height } = s;
		ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
		ctx.fillStyle = s.tokens.surface;
		ctx.fillRect(0, 0, width, height);
		const rows = placed(s.shown, s.scroll, height);
		this.behind(ctx, s, rows);
		const out = {
			items: 0,
			events: 0,
			more: false
		};
		const raster = this.raster(s, rows);
		const labels = [];
		this.items(s, rows, raster, labels, out);
		this.blit(ctx, s, rows, raster);
		this.bands(ctx, s);
		this.words(ctx, s, labels);
		this.above(ctx, s, rows);
		this.pinnedEdge(ctx, s);
		return out;
	}
	raster(s, rows) {
		const width = Math.max(1, Math.round(s.width * s.ratio));
		const lines = Math.max(1, rows.reduce((sum, { row }) => sum + linesOf(row, s.ratio), 0));
		if (!this.image || this.image.width !== width || this.image.height < lines) this.image = new ImageData(width, Math.max(lines, 64));
		const pixels = new Uint32Array(this.image.data.buffer, 0, width * this.image.height);
		pixels.fill(0, 0, width * lines);
		return {
			pixels,
			width
		};
	}
	items(s, rows, raster, labels, out) {
		const z = levelIn(s);
		const [first, last] = tilesOf(s.view, z, s.span);
		let line = 0;
		for (const { row, y } of rows) {
			const track = row.track.track;
			const lines = linesOf(row, s.ratio);
			if (lines || row.track.kind === "counter") for (let i = first; i <= last; i++) {
				const covering = s.cache.covering(track, z, i);
				const width = 2 ** (z + 10);
				const from = i === first ? -Infinity : i * width;
				if (covering.tile) this.tile(s, raster, line, row, y, covering.tile, from, (i + 1) * width, labels, out, i === first);
				for (const tile of covering.finer) {
					const part = stretchOf$1(tile);
					for (let k = 0; k < lines; k++) clearStretch(raster, line + k, s.view, part.start, part.end);
					this.tile(s, raster, line, row, y, tile, part.start, part.end, labels, out, false);
				}
			}
			if (lines && row.track.kind === "counter") this.counter(s, row, raster, line);
			line += lines;
		}
	}
	tile(s, raster, line, row, y, tile, from, to, labels, out, edge) {
		if (tile.kind === "summary") return drawSummary(raster, line, linesOf(row, s.ratio), tile, s.view, from, to, s.paint);
		if (tile.kind !== "slices") return;
		for (let lane = 0; lane < Math.min(row.lanes, tile.bounds.length - 1); lane++) {
			drawLane(raster, line + lane, tile, lane, s.view, from, to, s.names.categories, s.paint, s.how);
			if (row.lane >= 14) collect(labels, tile, lane, s.view, s.width, y + laneTop(row, lane) - row.y, row.lane, from, to, s.names.categories, row.pinned);
		}
		count(tile, row, Math.max(from, s.view.start), Math.min(to, s.view.end), edge, out);
	}
	blit(ctx, s, rows, raster) {
		const image = this.image;
		if (this.strip.width !== image.width || this.strip.height !== image.height) Object.assign(this.strip, {
			width: image.width,
			height: image.height
		});
		this.stripContext.putImageData(image, 0, 0);
		ctx.imageSmoothingEnabled = false;
		ctx.save();
		let line = 0;
		let clipped = false;
		for (const { row, y } of rows) {
			if (!clipped && !s.shown.pinned.includes(row)) {
				clipped = true;
				ctx.beginPath();
				ctx.rect(0, s.shown.pinnedHeight, s.width, s.height);
				ctx.clip();
			}
			const lines = linesOf(row, s.ratio);
			if (row.lanes) {
				const top = y + laneTop(row, 0) - row.y;
				ctx.drawImage(this.strip, 0, line, raster.width, row.lanes, 0, top, s.width, row.lanes * row.lane);
				ctx.fillStyle = s.tokens.surface;
				const gap = row.lane < 14 ? 1 : 2;
				for (let k = 0; k < row.lanes; k++) ctx.fillRect(0, top + (k + 1) * row.lane - gap, s.width, gap);
			} else if (lines) ctx.drawImage(this.strip, 0, line, raster.width, lines, 0, y + 4, s.width, row.height - 8);
			line += lines;
		}
		ctx.restore();
	}
	words(ctx, s, labels) {
		ctx.font = FONT;
		ctx.textBaseline = "middle";
		this.cutter ??= new Cutter((text) => ctx.measureText(text).width);
		let ink = "";
		ctx.save();
		const floor = s.shown.pinnedHeight;
		let clipped = !floor;
		for (const label of chosen$2(labels).sort((a, b) => Number(b.pinned) - Number(a.pinned))) {
			if (!label.pinned && label.y + label.height <= floor) continue;
			if (!label.pinned && !clipped) {
				clipped = true;
				ctx.beginPath();
				ctx.rect(0, floor, s.width, s.height);
				ctx.clip();
			}
			const letter = s.letters?.[label.category];
			const [name, narrow] = [s.names.short(label.name), s.names.narrow(label.name)];
			const before = letter ? `${letter}\u2009` : "";
			const text = this.cutter.cut(before + (name === narrow || this.cutter.fits(before + name, label.width) ? name : narrow), label.width);
			if (!text) continue;
			const next = s.how.same === label.name ? s.paint.brightInks[label.category] : s.how.found && !s.how.found.has(label.name) ? s.paint.fadedInks[label.category] : s.paint.inks[label.category];
			if (next !== ink) ctx.fillStyle = ink = next;
			ctx.fillText(text, label.x + 4, label.y + (label.height - 1) / 2);
		}
		ctx.restore();
	}
	counter(s, row, raster, line) {
		const { track } = row;
		const [low, high] = [Math.min(track.min_value ?? 0, 0), track.max_value ?? 1];
		const z = levelIn(s);
		const [first, last] = tilesOf(s.view, z, s.span);
		const level = new Level(s.view, raster.width);
		for (let i = first; i <= last; i++) {
			const found = s.cache.covering(track.track, z, i);
			const parts = found.tile && !found.finer.length ? [found.tile] : [...found.tile ? [found.tile] : [], ...found.finer];
			for (const tile of parts) if (tile.kind === "counter") level.add(tile, i * 2 ** (z + 10), (i + 1) * 2 ** (z + 10));
		}
		level.until(Math.min(s.view.end, s.ends[track.worker] ?? s.span));
		drawLevel(raster, line, linesOf(row, s.ratio), level, low, high, s.tokens.bar, s.ratio);
	}
	behind(ctx, s, rows) {
		ctx.lineWidth = 1;
		for (const { row, y } of rows) if (row.group) {
			ctx.fillStyle = s.tokens.sunken;
			ctx.fillRect(0, y, s.width, row.height);
		}
		ctx.fillStyle = s.tokens.line;
		for (const tick of ticksOf(s.view, s.width)) ctx.fillRect(Math.round(xOf(tick.time, s.view, s.width)), 0, 1, s.height);
		for (const { row, y } of rows) ctx.fillRect(0, Math.round(y + row.height) - 1, s.width, 1);
		for (const [start, end] of s.highlight) {
			const x0 = xOf(start, s.view, s.width);
			ctx.fillStyle = s.tokens.accentBg;
			ctx.fillRect(x0, 0, Math.max(1, xOf(end, s.view, s.width) - x0), s.height);
		}
	}
	/** Edges of steps, and fainter those of phases, through all rows; words stand on them. */
	bands(ctx, s) {
		ctx.fillStyle = this.dashes(ctx, s.tokens.line);
		const least = LEAST_PHASE / s.width * lengthOf(s.view);
		for (const x of bandEdges(s.phases.filter((p) => p.depth === 0 && p.end_ns - p.start_ns >= least), s.view, s.width)) ctx.fillRect(x, 0, 1, s.height);
		ctx.fillStyle = this.dashes(ctx, s.tokens.strong);
		for (const x of bandEdges(s.steps, s.view, s.width)) ctx.fillRect(x, 0, 1, s.height);
	}
	above(ctx, s, rows) {
		ctx.lineWidth = 1;
		if (s.path.length) this.path(ctx, s, rows);
		if (s.area) this.areaOf(ctx, s, rows, s.area);
		this.compare(ctx, s);
		ctx.fillStyle = s.tokens.warn;
		for (const mark of s.marks) ctx.fillRect(Math.round(xOf(mark, s.view, s.width)), 0, 1, s.height);
		for (const one of s.outlines) this.outline(ctx, s, rows, one);
		this.arrows = [];
		for (const flow of s.flows) this.arrow(ctx, s, rows, flow);
	}
	path(ctx, s, rows) {
		const tops = new Map(rows.filter(({ row, y }) => row.pinned || y >= s.shown.pinnedHeight - 2).map(({ row, y }) => [row.track.track, Math.round(y) + 1]));
		drawPath(ctx, s.path, {
			x: (time) => xOf(time, s.view, s.width),
			y: (track) => tops.get(track) ?? null,
			width: s.width,
			color: s.tokens.accent,
			halo: s.tokens.surface
		});
	}
	/** A column of pixels with gaps: faster than a dashed line. */
	dashes(ctx, color) {
		const known = this.dashed.get(color);
		if (known) return known;
		const tile = document.createElement("canvas");
		Object.assign(tile, {
			width: 1,
			height: 5
		});
		const own = tile.getContext("2d");
		own.fillStyle = color;
		own.fillRect(0, 0, 1, 2);
		const pattern = ctx.createPattern(tile, "repeat") ?? color;
		this.dashed.set(color, pattern);
		return pattern;
	}
	areaOf(ctx, s, rows, area) {
		if (!area.tracks) return this.band(ctx, s, area, 0, s.height, true);
		for (const { row, y } of rows) if (area.tracks.has(row.track.track)) this.band(ctx, s, area, Math.max(y, row.pinned ? 0 : s.shown.pinnedHeight), y + row.height, false);
		this.band(ctx, s, area, 0, 0, true);
	}
	band(ctx, s, span, y0, y1, edges) {
		const [x0, x1] = [xOf(span.start, s.view, s.width), xOf(span.end, s.view, s.width)];
		ctx.globalAlpha = .1;
		ctx.fillStyle = s.tokens.accent;
		if (y1 > y0) ctx.fillRect(x0, y0, Math.max(1, x1 - x0), y1 - y0);
		ctx.globalAlpha = 1;
		if (!edges) return;
		for (const x of [x0, x1]) if (x >= -1 && x <= s.width + 1) ctx.fillRect(Math.round(x), 0, 1, s.height);
	}
	/** The gap between the last two events that were added to the selection. */
	compare(ctx, s) {
		const [a, b] = s.compared.slice(-2);
		if (!a || !b) return;
		const [first, second] = a.start <= b.start ? [a, b] : [b, a];
		const [x0, x1] = [xOf(first.end, s.view, s.width), xOf(second.start, s.view, s.width)];
		const y = s.height - 12;
		ctx.strokeStyle = ctx.fillStyle = s.tokens.accent;
		ctx.beginPath();
		ctx.moveTo(x0, y);
		ctx.lineTo(x1, y);
		ctx.stroke();
		for (const x of [x0, x1]) ctx.fillRect(Math.round(x), y - 4, 1, 9);
		ctx.font = FONT;
		ctx.textBaseline = "alphabetic";
		ctx.fillText(gapText(a, b), Math.max(4, Math.min((x0 + x1) / 2 - 30, s.width - 90)), y - 6);
	}
	yOf(s, rows, track, lane) {
		const found = rows.find(({ row }) => row.track.track === track);
		if (!found || !found.row.lanes) return null;
		const at = Math.min(lane, found.row.lanes - 1);
		const top = found.y + laneTop(found.row, at) - found.row.y;
		return !found.row.pinned && top < s.shown.pinnedHeight - 2 ? null : [top, found.row.lane - 2];
	}
	outline(ctx, s, rows, one) {
		const place = this.yOf(s, rows, one.track, one.lane);
		if (!place) return;
		const x0 = Math.max(-3, xOf(one.start, s.view, s.width));
		const x1 = Math.min(s.width + 3, Math.max(xOf(one.end, s.view, s.width), xOf(one.start, s.view, s.width) + 2));
		if (x1 < 0 || x0 > s.width) return;
		ctx.strokeStyle = one.strong ? s.tokens.accent : s.tokens.ink2;
		ctx.lineWidth = one.strong ? 2 : 1;
		ctx.strokeRect(x0 - .5, place[0] - .5, x1 - x0 + 1, place[1] + 1);
	}
	/** A link between two events; an end outside of what is shown is a stub with the name of its row. */
	arrow(ctx, s, rows, flow) {
		const end = (e, time) => {
			const place = this.yOf(s, rows, e.track, e.lane);
			const x = xOf(time, s.view, s.width);
			const row = rows.find(({ row }) => row.track.track === e.track)?.row ?? s.shown.rows.find((r) => r.track.track === e.track);
			const below = !row || row.y >= s.scroll;
			return {
				x: Math.max(-2, Math.min(x, s.width + 2)),
				y: place ? place[0] + place[1] / 2 : below ? s.height - 4 : s.shown.pinnedHeight + 4,
				name: place ? "" : row?.track.label ?? e.name
			};
		};
		const [a, b] = [end(flow.source, flow.source.start_ns), end(flow.target, flow.target.start_ns)];
		if (a.name && b.name) return;
		ctx.strokeStyle = ctx.fillStyle = flow.kind === "launch" ? s.tokens.accent : s.tokens.warn;
		ctx.lineWidth = 1;
		const bend = Math.max(14, Math.abs(b.x - a.x) / 2);
		this.arrows.push({
			flow,
			points: curve([a.x, a.y], [a.x + bend, a.y], [b.x - bend, b.y], [b.x, b.y]),
			stub: a.name ? [a.x, a.y] : b.name ? [b.x, b.y] : null
		});
		ctx.beginPath();
		ctx.moveTo(a.x, a.y);
		ctx.bezierCurveTo(a.x + bend, a.y, b.x - bend, b.y, b.x, b.y);
		ctx.stroke();
		ctx.beginPath();
		ctx.moveTo(b.x, b.y);
		ctx.lineTo(b.x - 6, b.y - 3);
		ctx.lineTo(b.x - 6, b.y + 3);
		ctx.fill();
		ctx.font = FONT;
		ctx.textBaseline = "middle";
		for (const one of [a, b]) if (one.name) ctx.fillText(one.name.slice(0, 40), Math.max(2, Math.min(one.x + 4, s.width - 120)), one.y - 6);
	}
	/** The link that is drawn at a place, or whose end outside of the view is. */
	arrowAt(x, y) {
		const near = ([a, b], by) => Math.hypot(a - x, b - y) <= by;
		return this.arrows.find((one) => one.stub && x >= one.stub[0] - 6 && x <= one.stub[0] + STUB && Math.abs(one.stub[1] - 4 - y) <= 10)?.flow ?? this.arrows.find((one) => one.points.some((p) => near(p, 4)))?.flow ?? null;
	}
	pinnedEdge(ctx, s) {
		if (!s.shown.pinned.length) return;
		ctx.fillStyle = s.tokens.strong;
		ctx.fillRect(0, s.shown.pinnedHeight - 1, s.width, 1);
	}
};
/** px of a phase whose edges are lines. */
var LEAST_PHASE = 12;
/** Lines of bands in view, more than which would be a haze. */
var MOST_LINES = 200;
/** Where bands in view begin and end, px, each place once; none where there are too many. */
function bandEdges(bands, view, width) {
	const out = /* @__PURE__ */ new Set();
	for (const band of bands) for (const time of [band.start_ns, band.end_ns]) {
		if (time < view.start || time > view.end) continue;
		out.add(Math.round(xOf(time, view, width)));
		if (out.size > MOST_LINES) return [];
	}
	return [...out];
}
/** Rows of pixels that a row takes in the raster: one of a lane, all of a summary and of an open counter. */
var linesOf = (row, ratio) => row.group ? TALL : row.track.kind === "counter" ? row.open ? Math.round((row.height - 8) * ratio) : 0 : row.lanes;
/** Adds up what a tile shows between two times: items, and the events in them. Items that began before count in the first tile only. */
function count(tile, row, from, to, edge, out) {
	for (let lane = 0; lane < Math.min(row.lanes, tile.bounds.length - 1); lane++) for (let k = tile.bounds[lane]; k < tile.bounds[lane + 1]; k++) {
		if (tile.start[k] >= to) break;
		if (tile.end[k] <= from || tile.start[k] < from && !edge) continue;
		out.items++;
		out.events += tile.count[k];
		if (tile.count[k] === 65535) out.more = true;
	}
}
var MOST_PHASE_DEPTH = 3;
var MOST_ROWS = 8;
/** Part of the accent in the fill of a phase, by depth. */
var PHASE_SHARES = [
	.3,
	.2,
	.13
];
/** px of the ticks of steps in the overview. */
var STEP_TICK = 6;
var phaseDepth = (phases) => Math.min(MOST_PHASE_DEPTH, phases.reduce((most, p) => Math.max(most, p.depth + 1), 0));
/** Where the parts of the head stand. compact: of a small timeline, the ruler alone. */
function partsOf(steps, phases, compact) {
	let y = 0;
	const take = (height) => {
		const part = [y, y + height];
		y += height;
		return part;
	};
	const overview = take(compact ? 0 : 46);
	const ruler = take(22);
	const stepBand = steps.length && !compact ? take(17) : null;
	const depth = compact ? 0 : phaseDepth(phases);
	return {
		overview,
		ruler,
		steps: stepBand,
		phases: depth ? take(depth * 17) : null,
		height: y
	};
}
var HeadPainter = class {
	strip = document.createElement("canvas");
	stripContext = this.strip.getContext("2d");
	cutter = null;
	draw(ctx, h, parts) {
		const { ratio, width, tokens } = h;
		ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
		ctx.fillStyle = tokens.surface;
		ctx.fillRect(0, 0, width, parts.height);
		ctx.font = FONT;
		this.cutter ??= new Cutter((text) => ctx.measureText(text).width);
		if (parts.overview[1] > parts.overview[0]) this.overview(ctx, h);
		this.ruler(ctx, h, parts.ruler);
		if (parts.steps) this.steps(ctx, h, parts.steps);
		if (parts.phases) this.phases(ctx, h, parts.phases);
	}
	overview(ctx, h) {
		const { width, tokens, all } = h;
		const top = 4;
		const rows = h.groups.slice(0, MOST_ROWS);
		const tall = Math.max(3, Math.floor(38 / Math.max(rows.length, 1)) - (rows.length > 1 ? 1 : 0));
		ctx.fillStyle = tokens.sunken;
		ctx.fillRect(0, top, width, 38);
		const raster = {
			pixels: new Uint32Array(Math.round(width) * 38),
			width: Math.round(width)
		};
		rows.forEach((track, k) => {
			const tile = h.cache.get(track.track, h.cache.top, 0);
			const y = Math.min(38 - tall, k * (tall + (rows.length > 1 ? 1 : 0)));
			if (tile?.kind === "summary") drawSummary(raster, y, tall, tile, all, all.start, all.end, h.paint);
		});
		if (this.strip.width !== raster.width || this.strip.height !== 38) Object.assign(this.strip, {
			width: raster.width,
			height: 38
		});
		this.stripContext.putImageData(new ImageData(new Uint8ClampedArray(raster.pixels.buffer), raster.width), 0, 0);
		ctx.imageSmoothingEnabled = false;
		ctx.drawImage(this.strip, 0, top, width, 38);
		ctx.fillStyle = tokens.strong;
		for (const x of bandEdges(h.steps, all, width)) ctx.fillRect(x, top, 1, STEP_TICK);
		this.density(ctx, h, top);
		ctx.fillStyle = tokens.warn;
		for (const mark of h.marks) ctx.fillRect(Math.round(xOf(mark, all, width)), top, 1, 38);
		this.frame(ctx, h, top);
	}
	density(ctx, h, top) {
		if (!h.density?.length) return;
		const most = Math.max(...h.density);
		ctx.fillStyle = h.tokens.accent;
		const part = h.width / h.density.length;
		h.density.forEach((count, k) => {
			if (count) ctx.fillRect(k * part, top + 38 - 2 - 8 * (count / most), Math.max(1, part), 2 + 8 * (count / most));
		});
	}
	/** The visible stretch: a frame with two handles, the rest of the recording paler. */
	frame(ctx, h, top) {
		const { width, tokens } = h;
		const [x0, x1] = [Math.max(0, xOf(h.view.start, h.all, width)), Math.min(width, xOf(h.view.end, h.all, width))];
		ctx.globalAlpha = .55;
		ctx.fillStyle = tokens.surface;
		ctx.fillRect(0, top, x0, 38);
		ctx.fillRect(x1, top, width - x1, 38);
		ctx.globalAlpha = 1;
		ctx.strokeStyle = tokens.accent;
		ctx.lineWidth = 1.5;
		ctx.strokeRect(x0 + .75, top + .75, Math.max(2, x1 - x0 - 1.5), 36.5);
		ctx.fillStyle = tokens.accent;
		for (const x of [x0, x1]) {
			ctx.beginPath();
			ctx.roundRect(Math.max(0, Math.min(width - 5, x - 2.5)), top + 19 - 7, 5, 14, 2.5);
			ctx.fill();
		}
	}
	ruler(ctx, h, [top, bottom]) {
		const { width, tokens, view } = h;
		ctx.textBaseline = "middle";
		ctx.fillStyle = tokens.line;
		ctx.fillRect(0, bottom - 1, width, 1);
		for (const tick of ticksOf(view, width)) {
			const x = Math.round(xOf(tick.time, view, width));
			ctx.fillStyle = tokens.line;
			ctx.fillRect(x, bottom - 6, 1, 6);
			ctx.fillStyle = tokens.ink3;
			if (x + 4 + ctx.measureText(tick.text).width <= width) ctx.fillText(tick.text, x + 4, (top + bottom) / 2);
		}
		const word = (text, at, fill, ink) => {
			const wide = ctx.measureText(text).width + 12;
			const x = Math.max(0, Math.min(width - wide, at - wide / 2));
			ctx.fillStyle = fill;
			ctx.beginPath();
			ctx.roundRect(x, top + 2, wide, 17, 4);
			ctx.fill();
			ctx.fillStyle = ink;
			ctx.fillText(text, x + 6, (top + bottom) / 2);
		};
		for (const mark of h.marks) {
			const x = xOf(mark, view, width);
			if (x < 0 || x > width) continue;
			ctx.fillStyle = tokens.warn;
			ctx.beginPath();
			ctx.moveTo(x - 5, top + 4);
			ctx.lineTo(x + 5, top + 4);
			ctx.lineTo(x, bottom - 3);
			ctx.fill();
		}
		if (h.area && h.area.end > view.start && h.area.start < view.end) {
			const middle = (Math.max(h.area.start, view.start) + Math.min(h.area.end, view.end)) / 2;
			word(human(lengthOf(h.area), "ns"), xOf(middle, view, width), tokens.accent, tokens.onAccent);
		} else if (h.pointer !== null) word(moment(h.pointer, lengthOf(view) / width), xOf(h.pointer, view, width), tokens.sunken, tokens.ink2);
	}
	bar(ctx, h, start, end, top, text, fill, ink) {
		const [x0, x1] = [Math.max(0, xOf(start, h.view, h.width)), Math.min(h.width, xOf(end, h.view, h.width))];
		if (x1 <= 0 || x0 >= h.width || x1 - x0 < .4) return;
		ctx.fillStyle = fill;
		ctx.fillRect(x0, top + 1, Math.max(1, x1 - x0 - 1), 15);
		const shown = this.cutter.cut(text, x1 - x0);
		if (!shown) return;
		ctx.fillStyle = ink;
		ctx.textBaseline = "middle";
		ctx.fillText(shown, x0 + 4, top + 17 / 2);
	}
	steps(ctx, h, [top]) {
		for (const step of h.steps) this.bar(ctx, h, step.start_ns, step.end_ns, top, step.complete ? step.label : `${step.label} (cut)`, h.tokens.sunken, h.tokens.ink2);
	}
	phases(ctx, h, [top]) {
		const [surface, accent] = [channels(h.tokens.surface), channels(h.tokens.accent)];
		for (const p of h.phases) {
			if (p.depth >= MOST_PHASE_DEPTH) continue;
			const [r, g, b] = mix(surface, accent, PHASE_SHARES[p.depth]);
			this.bar(ctx, h, p.start_ns, p.end_ns, top + p.depth * 17, p.label, `rgb(${r} ${g} ${b})`, h.tokens.ink);
		}
	}
};
// src/sections/timeline/nesting.ts
/** Nested events stand one lane below each other: what the lanes beside one say of item `k`. */
function nestingOf(tile, lane, k) {
	const [start, end] = [tile.start[k], tile.end[k]];
	const around = itemAt(tile, lane - 1, (start + end) / 2, 0);
	const holds = around >= 0 && tile.count[around] === 1 && tile.start[around] <= start && tile.end[around] >= end;
	const part = stretchOf$1(tile);
	const known = tile.complete && start >= part.start && end <= part.end;
	return {
		parent: holds ? tile.end[around] - tile.start[around] : null,
		own: known ? end - start - inside(tile, lane + 1, start, end) : null
	};
}
/** Time of the items of a lane between two times. */
function inside(tile, lane, from, to) {
	if (lane >= tile.bounds.length - 1) return 0;
	let sum = 0;
	for (let k = firstAfter(tile, lane, from); k < tile.bounds[lane + 1] && tile.start[k] < to; k++) sum += Math.min(tile.end[k], to) - Math.max(tile.start[k], from);
	return sum;
}
// src/sections/timeline/pointer.ts
/** px that a press must move until it is a drag. */
var MOVES = 4;
var place$1 = (event) => {
	const at = event.currentTarget.getBoundingClientRect();
	return [event.clientX - at.left, event.clientY - at.top];
};
function onWheel(surface, event, el) {
	const { model } = surface;
	const x = event.clientX - el.getBoundingClientRect().left;
	const unit = event.deltaMode === 1 ? 16 : 1;
	if (event.ctrlKey || event.metaKey) {
		event.preventDefault();
		model.zoom(Math.exp(event.deltaY * unit * .0035), timeOf(x, model.window.peek(), model.width.peek()));
	} else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
		event.preventDefault();
		model.pan((event.deltaX || event.deltaY) * unit / model.width.peek());
	}
}
function bodyDown(surface, event) {
	if (event.button !== 0) return;
	const [x, y] = place$1(event);
	event.currentTarget.setPointerCapture(event.pointerId);
	surface.drag = {
		kind: event.shiftKey || event.pointerType === "touch" || surface.model.embedded ? "pan" : "area",
		x,
		y,
		from: surface.model.window.peek(),
		moved: false,
		free: event.altKey
	};
}
function bodyMove(surface, event) {
	const [x, y] = place$1(event);
	const { drag, model } = surface;
	if (!drag) return surface.hover(x, y);
	if (!drag.moved && Math.abs(x - drag.x) <= MOVES) return;
	if (!drag.moved) surface.leave();
	drag.moved = true;
	if (drag.kind === "pan") {
		const by = (drag.x - x) / model.width.peek() * lengthOf(drag.from);
		model.show({
			start: drag.from.start + by,
			end: drag.from.end + by
		});
	} else {
		const [a, b] = [surface.snapped(drag.x, drag.y, drag.free || event.altKey), surface.snapped(x, y, drag.free || event.altKey)];
		const span = {
			start: Math.round(Math.max(0, Math.min(a, b))),
			end: Math.round(Math.max(a, b))
		};
		surface.dragSpan = span.end > span.start ? span : null;
		model.area.value = surface.dragSpan && {
			...span,
			paths: pathsBetween(surface, drag.y, y)
		};
	}
}
/** Paths of the rows between two heights; none where they are all that is shown. */
function pathsBetween(surface, a, b) {
	const rows = placed(surface.model.rows.shown.peek(), surface.scroller?.scrollTop ?? 0, surface.model.height.peek());
	const [low, high] = [Math.min(a, b), Math.max(a, b)];
	const touched = rows.filter(({ row, y }) => y < high + 1 && y + row.height > low);
	return touched.length === rows.length && rows.length > 1 ? [] : touched.map(({ row }) => row.track.path);
}
function bodyUp(surface, event, onOpen) {
	const { drag, model } = surface;
	const [x, y] = place$1(event);
	surface.drag = null;
	surface.dragSpan = null;
	if (!drag) return;
	if (drag.moved) {
		const area = model.area.peek();
		if (drag.kind === "area") model.choose(area);
		return;
	}
	if (onOpen) return onOpen();
	const item = surface.hit(x, y);
	const flow = surface.painter.arrowAt(x, y);
	if (flow && !item) return model.follow(flow);
	if (!item) {
		if (model.area.peek()) model.choose(null);
		if (model.selected.peek()) model.select(null);
		return;
	}
	if (event.ctrlKey || event.metaKey) model.compare(item);
	else model.pick(item);
}
function headDown(surface, event) {
	if (event.button !== 0) return;
	const [x, y] = place$1(event);
	const { model } = surface;
	const parts = surface.parts();
	event.currentTarget.setPointerCapture(event.pointerId);
	const from = model.window.peek();
	if (!(y < parts.overview[1])) surface.drag = {
		kind: y < parts.ruler[1] ? "pan" : "area",
		x,
		y,
		from,
		moved: false,
		free: true
	};
	else {
		const [x0, x1] = [xOf(from.start, model.all.peek(), model.width.peek()), xOf(from.end, model.all.peek(), model.width.peek())];
		const kind = Math.abs(x - x0) < 6 ? "left" : Math.abs(x - x1) < 6 ? "right" : "window";
		model.leave();
		surface.drag = {
			kind,
			x,
			y,
			from,
			moved: false,
			free: true
		};
	}
}
function headMove(surface, event) {
	const [x, y] = place$1(event);
	const { drag, model } = surface;
	const width = model.width.peek();
	if (!drag) {
		model.pointer = y >= surface.parts().overview[1] ? timeOf(x, model.window.peek(), width) : null;
		return surface.schedule();
	}
	drag.moved ||= Math.abs(x - drag.x) > MOVES;
	if (!drag.moved) return;
	const all = model.all.peek();
	const time = timeOf(x, all, width);
	if (drag.kind === "pan") {
		const by = (drag.x - x) / width * lengthOf(drag.from);
		model.show({
			start: drag.from.start + by,
			end: drag.from.end + by
		});
	} else if (drag.kind === "window") {
		const began = timeOf(drag.x, all, width);
		model.show({
			start: Math.min(began, time),
			end: Math.max(began, time)
		});
	} else if (drag.kind === "left") model.show({
		start: Math.min(time, drag.from.end - 20),
		end: drag.from.end
	});
	else if (drag.kind === "right") model.show({
		start: drag.from.start,
		end: Math.max(time, drag.from.start + 20)
	});
}
/** A band of steps or phases at a place of the head. */
function bandAt(surface, x, y) {
	const { model } = surface;
	const parts = surface.parts();
	const time = timeOf(x, model.window.peek(), model.width.peek());
	const holds = (s) => s.start_ns <= time && time < s.end_ns;
	if (parts.steps && y >= parts.steps[0] && y < parts.steps[1]) {
		const found = model.steps.peek().find(holds);
		return found ? {
			start: found.start_ns,
			end: found.end_ns
		} : null;
	}
	if (parts.phases && y >= parts.phases[0]) {
		const depth = Math.floor((y - parts.phases[0]) / 17);
		const found = model.phases.peek().find((p) => p.depth === depth && holds(p));
		return found ? {
			start: found.start_ns,
			end: found.end_ns
		} : null;
	}
	return null;
}
function headUp(surface, event) {
	const { drag, model } = surface;
	const [x, y] = place$1(event);
	surface.drag = null;
	if (!drag || drag.moved) return;
	const now = model.window.peek();
	if (drag.kind === "pan") model.mark(timeOf(x, now, model.width.peek()));
	else if (drag.kind === "area") {
		const band = bandAt(surface, x, y);
		if (band) model.choose({
			...band,
			paths: []
		});
	} else {
		const middle = timeOf(x, model.all.peek(), model.width.peek());
		model.show({
			start: middle - lengthOf(now) / 2,
			end: middle + lengthOf(now) / 2
		});
	}
}
function headDouble(surface, event) {
	const band = bandAt(surface, ...place$1(event));
	if (band) surface.model.show(band, true);
}
// src/sections/timeline/reading.ts
var NONE$1 = 255;
/** Rows of a card: of a counter its value, of a worker, process or device how busy it is; null where nothing is known. */
function readingOf(track, covering, time, categories) {
	const tile = covering.finer.find((one) => Math.floor(time / 2 ** (one.z + 10)) === one.i) ?? covering.tile;
	if (tile?.kind === "counter") return valueAt(tile, time, track.unit);
	return tile?.kind === "summary" ? useAt(tile, time, categories) : null;
}
function valueAt(tile, time, unit) {
	let [low, high] = [0, tile.time.length];
	while (low < high) {
		const middle = low + high >> 1;
		if (tile.time[middle] <= time) low = middle + 1;
		else high = middle;
	}
	const k = low - 1;
	const value = k < 0 ? tile.before : tile.last[k];
	if (value === null) return null;
	const spread = k >= 0 && time < tile.time[k] + 2 ** tile.z && tile.low[k] < tile.high[k];
	return [["Value", human(value, unit)], ...spread ? [["Within a pixel", `${human(tile.low[k], unit)} to ${human(tile.high[k], unit)}`]] : []];
}
function useAt(tile, time, categories) {
	const k = Math.floor(time / 2 ** tile.z) - tile.i * tile.category.length;
	if (!(k >= 0 && k < tile.category.length)) return null;
	const kind = tile.category[k] === NONE$1 ? void 0 : categories[tile.category[k]];
	return [
		["Busy", human(tile.busy[k] / 255, "ratio")],
		...kind ? [["Mostly", kind.label.toLowerCase()]] : [],
		...tile.depth[k] > 1 ? [["Deepest", human(tile.depth[k], "count")]] : []
	];
}
// src/sections/timeline/tree.tsx
/** px of a name with a line below it; in a lower row both stand side by side. */
var LEAST$2 = 36;
/** What is too long to stand beside a name. */
var SHORTER = { communication: "comm." };
var tipOf = (row) => {
	const { track: t } = row;
	return [[t.path, t.detail && t.detail !== t.label ? t.detail : ""].filter(Boolean).join(" · "), t.kind === "counter" ? t.max_value === null ? "" : `most ${human(t.max_value, t.unit)}` : `${human(t.events, "count")} events${t.lanes > 1 ? ` in ${t.lanes} lanes` : ""}${t.launches ? `, launched ${human(t.launches, "count")} device events` : ""}`].filter(Boolean).join("\n");
};
function RowLabel({ model, row, top, height }) {
	const { track } = row;
	const detail = model.rows.arrangement.value.layout === "worker" && row.group ? model.shape.value?.alignment[track.worker]?.worker ?? "" : track.kind === "counter" && track.max_value !== null ? `up to ${human(track.max_value, track.unit)}` : track.detail;
	const seen = row.height < LEAST$2 ? SHORTER[detail] ?? detail : detail;
	const branch = row.group || track.lanes > 1 || track.kind === "counter";
	const hits = model.finder.state.value.hits?.tracks.find((t) => t.track === track.track)?.count;
	const cursor = model.cursor.value === track.path;
	const actions = model.embedded ? [] : [[
		row.pinned ? "Unpin (P)" : "Pin above the others (P)",
		row.pinned ? "unpin" : "pin",
		() => model.rows.pin(track)
	], [
		"Hide (H)",
		"close",
		() => model.rows.hide(track)
	]];
	return /* @__PURE__ */ a("div", {
		class: `tl-label ${row.group ? "is-group" : ""} ${row.open ? "" : "is-closed"} ${row.height < LEAST$2 ? "is-short" : ""} ${cursor ? "cursor" : ""}`,
		id: model.embedded ? void 0 : rowId(row),
		style: {
			top: `${top}px`,
			height: `${height}px`,
			paddingLeft: `${6 + row.level * 10}px`
		},
		role: "treeitem",
		"aria-level": row.level + 1,
		"aria-expanded": branch ? row.open : void 0,
		"aria-label": [
			track.label,
			seen,
			hits !== void 0 && `${human(hits, "count")} found`,
			`${track.events} events`
		].filter(Boolean).join(", "),
		"aria-selected": cursor,
		"data-track": track.track,
		"data-path": track.path,
		onPointerDown: () => {
			model.cursor.value = track.path;
		},
		children: [
			branch ? /* @__PURE__ */ a("button", {
				type: "button",
				class: `caret ${row.open ? "open" : ""}`,
				tabIndex: -1,
				"aria-label": `${row.open ? "Close" : "Open"} ${track.label}`,
				"data-tip": `${row.open ? "Close" : "Open"} (E)`,
				onClick: () => model.rows.toggle(track),
				children: /* @__PURE__ */ a(Icon, {
					name: "right",
					size: 11
				})
			}) : /* @__PURE__ */ a("span", { class: "caret" }),
			/* @__PURE__ */ a("div", {
				class: "tl-name",
				"data-tip": tipOf(row),
				children: [
					/* @__PURE__ */ a("span", {
						class: "tl-title",
						children: /* @__PURE__ */ a(Middle, {
							text: track.label,
							tip: "",
							tail: row.group ? 8 : void 0
						})
					}),
					" ",
					detail && row.height >= 24 && detail !== track.label && /* @__PURE__ */ a("span", {
						class: "tl-detail",
						children: seen
					})
				]
			}),
			" ",
			hits !== void 0 && /* @__PURE__ */ a("span", {
				class: "tl-hits",
				"data-tip": `${hits} found here`,
				children: human(hits, "count")
			}),
			/* @__PURE__ */ a("span", {
				class: "tl-actions",
				children: actions.map(([label, icon, act]) => /* @__PURE__ */ a("button", {
					type: "button",
					class: "ghost",
					tabIndex: -1,
					"aria-label": `${label}: ${track.label}`,
					"data-tip": label,
					onClick: act,
					children: /* @__PURE__ */ a(Icon, {
						name: icon,
						size: 12
					})
				}))
			})
		]
	});
}
var rowId = (row) => `tl-row-${row.track.track}`;
/** From row to row; whether the key was one of the list's. */
function onTreeKey(event, model, toRow) {
	if (event.altKey || event.ctrlKey || event.metaKey) return false;
	const { pinned, rows } = model.rows.shown.peek();
	const all = [...pinned, ...rows];
	const at = all.findIndex((r) => r.track.path === model.cursor.peek());
	const row = all[at];
	const branch = row && (row.group || row.track.lanes > 1 || row.track.kind === "counter");
	const to = (k) => {
		const next = all[Math.max(0, Math.min(all.length - 1, k))];
		if (next) {
			model.cursor.value = next.track.path;
			toRow(next);
		}
		return true;
	};
	switch (event.key) {
		case "ArrowDown": return to(at + 1);
		case "ArrowUp": return to(at < 0 ? 0 : at - 1);
		case "Home": return to(0);
		case "End": return to(all.length - 1);
		case "ArrowRight": return branch && !row.open ? (model.rows.toggle(row.track), true) : to(at + 1);
		case "ArrowLeft": {
			if (branch && row.open) return model.rows.toggle(row.track), true;
			let up = at - 1;
			while (up > 0 && row && all[up].level >= row.level) up--;
			return to(up);
		}
		case "Enter":
		case " ": return model.first(), true;
		default: return false;
	}
}
function Tree({ model, from, height, toRow }) {
	const shown = model.rows.shown.value;
	const cursor = [...shown.pinned, ...shown.rows].find((r) => r.track.path === model.cursor.value);
	const [first, last] = visible(shown.rows, from, from + height);
	return /* @__PURE__ */ a("div", {
		class: "tl-tree",
		role: "tree",
		"aria-label": "Rows of the timeline",
		tabIndex: 0,
		"aria-activedescendant": cursor && !model.embedded ? rowId(cursor) : void 0,
		onFocus: () => {
			if (!cursor && shown.rows[0]) model.cursor.value = (shown.pinned[0] ?? shown.rows[0]).track.path;
		},
		onKeyDown: (e) => {
			if (onTreeKey(e, model, toRow)) {
				e.preventDefault();
				e.stopPropagation();
			}
		},
		children: [/* @__PURE__ */ a("div", {
			class: "tl-pinned",
			style: { height: `${shown.pinnedHeight}px` },
			children: shown.pinned.map((row) => /* @__PURE__ */ a(RowLabel, {
				model,
				row,
				top: row.y,
				height: row.height
			}, row.track.track))
		}), shown.rows.slice(first, last).map((row) => {
			const hidden = Math.max(0, Math.min(from - row.y, row.height - LEAST$2));
			return /* @__PURE__ */ a(RowLabel, {
				model,
				row,
				top: row.y + hidden + shown.pinnedHeight,
				height: row.height - hidden
			}, row.track.track);
		})]
	});
}
// src/sections/timeline/plot.tsx
var SNAP = 6;
var LINKS_AFTER = 80;
var SLOW_FRAME = 20;
var SLOW_FOR = 500;
/** ms without a change after which the view is at rest. */
var RESTS = 150;
function tokensNow() {
	return {
		surface: token("surface"),
		sunken: token("sunken"),
		line: token("line"),
		strong: token("line-strong"),
		ink: token("ink"),
		ink2: token("ink-2"),
		ink3: token("ink-3"),
		accent: token("accent"),
		accentBg: token("accent-bg"),
		onAccent: token("on-accent"),
		warn: token("warn"),
		bar: token("bar-ink")
	};
}
/** Colors of the categories of a timeline: those of the other pages for device work. */
function paintFor(categories) {
	if (made?.categories !== categories || made.dark !== dark.value) made = {
		categories,
		dark: dark.value,
		paint: paintOf$1(categories.map(fillOf), token("surface"), dark.value)
	};
	return made.paint;
}
/** The paint of the last frame. */
var made = null;
/** The fill of a category. */
var fillOf = (category) => HOST_FILLS[category.name]?.[dark.value ? 1 : 0] ?? token(category.color);
/** Links of an event itself; of what lies inside of it, a few with the longest latencies. */
var drawnFlows = (d) => {
	const own = d.flows.filter((f) => [f.source, f.target].some((e) => e.event === d.event && e.track === d.track));
	return own.length ? own.slice(0, 20) : d.flows.slice(0, 6);
};
/** Everything about drawing and pointing that is not state of the timeline. */
var Surface = class {
	model;
	compact;
	painter = new Painter();
	headPainter = new HeadPainter();
	body = null;
	head = null;
	scroller = null;
	drag = null;
	dragSpan = null;
	/** the highlight whose lane has been scrolled to */
	proven = "";
	frame = 0;
	tried = null;
	slowSince = 0;
	drewAt = 0;
	reduced = false;
	idle = 0;
	rest = 0;
	shownView = null;
	movedAt = -Infinity;
	/** the view had moved shortly before it did the last time */
	goesOn = false;
	linkTimer = 0;
	/** script time of the last frames, ms: for the benchmark */
	times = [];
	constructor(model, compact) {
		this.model = model;
		this.compact = compact;
	}
	parts() {
		return partsOf(this.model.steps.peek(), this.model.phases.peek(), this.compact);
	}
	/** Fills of the categories. */
	fills() {
		return paintFor(this.model.shape.peek().categories).fills;
	}
	/** Draws tiles of rows as strips, one below the other, so many times, and nothing else: what a benchmark sets beside rectangles. */
	strips(tiles, context, times) {
		const width = Math.round(this.model.width.peek());
		const view = this.model.window.peek();
		const lines = Math.max(1, tiles.reduce((sum, [row]) => sum + row.lanes, 0));
		const image = this.tried?.width === width && this.tried.height === lines ? this.tried : this.tried = new ImageData(width, lines);
		const raster = {
			pixels: new Uint32Array(image.data.buffer),
			width
		};
		const paint = paintFor(this.model.shape.peek().categories);
		raster.pixels.fill(0);
		for (let time = 0; time < times; time++) {
			let line = 0;
			for (const [row, tile] of tiles) for (let lane = 0; lane < row.lanes; lane++, line++) drawLane(raster, line, tile, lane, view, -Infinity, Infinity, this.model.names.peek().categories, paint, PLAIN);
		}
		context.putImageData(image, 0, 0);
	}
	schedule() {
		if (!this.frame) this.frame = requestAnimationFrame(() => {
			this.frame = 0;
			this.draw();
		});
	}
	stop() {
		cancelAnimationFrame(this.frame);
		window.clearTimeout(this.idle);
		window.clearTimeout(this.rest);
		window.clearTimeout(this.linkTimer);
		this.frame = 0;
	}
	ratio() {
		return this.reduced ? 1 : Math.min(4, Math.max(.5, window.devicePixelRatio || 1));
	}
	/** Device pixels of the canvases, where the browser says how many: at any page zoom no pixel is smeared over two. */
	pixels = /* @__PURE__ */ new Map();
	sized(entries) {
		for (const { target, devicePixelContentBoxSize: size } of entries) if (size?.[0]) this.pixels.set(target, [size[0].inlineSize, size[0].blockSize]);
	}
	fit(canvas, width, height) {
		const ratio = this.ratio();
		const own = this.pixels.get(canvas);
		const pixelsOf = (css, side) => own && Math.abs(own[side] - css * ratio) <= ratio ? own[side] : Math.max(1, Math.round(css * ratio));
		const [w, h] = [pixelsOf(width, 0), pixelsOf(height, 1)];
		if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, {
			width: w,
			height: h
		});
		return canvas.getContext("2d", { alpha: false });
	}
	draw() {
		const { model, body, head } = this;
		const shape = model.shape.peek();
		if (!body || !head || !shape || document.visibilityState === "hidden") return;
		const began = performance.now();
		const [width, height] = [model.width.peek(), model.height.peek()];
		const tokens = tokensNow();
		const paint = paintFor(shape.categories);
		const context = this.fit(body, width, height);
		if (!context) return;
		const scene = this.scene(paint, tokens, width, height);
		const busy = this.request(scene);
		const drawn = this.painter.draw(context, scene);
		const parts = this.parts();
		const top = this.fit(head, width, parts.height);
		if (top) this.headPainter.draw(top, {
			view: model.window.peek(),
			all: model.all.peek(),
			width,
			ratio: this.ratio(),
			cache: model.cache,
			paint,
			tokens,
			steps: model.steps.peek(),
			phases: model.phases.peek(),
			groups: overviewRows(model),
			marks: model.marks.peek(),
			density: model.finder.state.peek().hits?.histogram ?? null,
			area: this.dragSpan ?? model.area.peek(),
			pointer: model.pointer
		}, parts);
		model.waiting.value = busy;
		const tally = model.tally.peek();
		if (tally.items !== drawn.items || tally.events !== drawn.events) model.tally.value = {
			items: drawn.items,
			events: drawn.events,
			more: drawn.more
		};
		this.pace(performance.now() - began);
	}
	/** Requests the tiles that a scene lacks, and at rest those that are likely to be wanted next. Returns whether it waits for any. */
	request(scene) {
		const { model } = this;
		const motion = this.motion(scene.view);
		const { top } = model.cache;
		const groups = this.compact ? [] : overviewRows(model).filter((t) => !model.cache.has(t.track, top, 0)).map((t) => t.track);
		const first = groups.length ? [{
			z: top,
			from: 0,
			to: 0,
			tracks: groups,
			rank: 0
		}] : [];
		const next = motion !== "rest" || this.compact ? [] : ahead(scene, model.pointer ?? (scene.view.start + scene.view.end) / 2);
		return model.want([
			...first,
			...lacking(scene),
			...next
		], levelIn(scene), motion === "moving");
	}
	/** Whether the view goes on moving, has jumped to where it is, or has come to rest: that is looked at again when it has. */
	motion(view) {
		const now = performance.now();
		if (this.shownView && (this.shownView.start !== view.start || this.shownView.end !== view.end)) {
			this.goesOn = now - this.movedAt < RESTS;
			this.movedAt = now;
		}
		this.shownView = view;
		window.clearTimeout(this.rest);
		const still = now - this.movedAt;
		if (still >= RESTS) return "rest";
		this.rest = window.setTimeout(() => this.schedule(), RESTS - still + 1);
		return this.goesOn ? "moving" : "jumped";
	}
	/** At a high device ratio slow frames are drawn at ratio 1, and sharply again at rest. */
	pace(ms) {
		this.times.push(ms);
		if (this.times.length > 2e3) this.times.splice(0, 1e3);
		const now = performance.now();
		const after = now - ms - this.drewAt;
		this.drewAt = now;
		if (ms <= SLOW_FRAME || after > RESTS) this.slowSince = now;
		else if (!this.reduced && (window.devicePixelRatio || 1) > 1 && now - this.slowSince > SLOW_FOR) this.reduced = true;
		window.clearTimeout(this.idle);
		if (this.reduced) this.idle = window.setTimeout(() => {
			this.reduced = false;
			this.schedule();
		}, 400);
	}
	scene(paint, tokens, width, height) {
		const { model } = this;
		const shape = model.shape.peek();
		const [hover, detail, selected, area] = [
			model.hover.peek(),
			model.detail.peek(),
			model.selected.peek(),
			model.area.peek()
		];
		const outlines = [];
		if (detail && selected) {
			outlines.push({
				track: detail.track,
				lane: detail.lane,
				start: detail.start_ns,
				end: detail.start_ns + detail.duration_ns,
				strong: true
			});
			for (const f of drawnFlows(detail)) for (const e of [f.source, f.target]) if (e.event !== detail.event || e.track !== detail.track) outlines.push({
				track: e.track,
				lane: e.lane,
				start: e.start_ns,
				end: e.end_ns,
				strong: false
			});
		}
		if (hover && hover.count === 1) {
			outlines.push({
				track: hover.track.track,
				lane: hover.lane,
				start: hover.start,
				end: hover.end,
				strong: false
			});
			const known = model.hovered.peek();
			if (known?.event === hover.event && known.track === hover.track.track) for (const f of drawnFlows(known)) for (const e of [f.source, f.target]) outlines.push({
				track: e.track,
				lane: e.lane,
				start: e.start_ns,
				end: e.end_ns,
				strong: false
			});
		}
		const compared = model.compared.peek();
		return {
			view: model.window.peek(),
			span: model.all.peek().end,
			ends: model.ends.peek(),
			shown: model.rows.shown.peek(),
			scroll: this.scroller?.scrollTop ?? 0,
			width,
			height,
			ratio: this.ratio(),
			cache: model.cache,
			names: model.names.peek(),
			paint,
			tokens,
			how: {
				same: hover && hover.count === 1 ? hover.name : -1,
				found: model.finder.state.peek().found,
				striped: model.patterns.peek()
			},
			letters: model.patterns.peek() ? lettersOf(shape.categories.map((c) => c.label)) : null,
			steps: this.compact ? [] : model.steps.peek(),
			phases: this.compact ? [] : model.phases.peek(),
			marks: model.marks.peek(),
			highlight: model.highlight,
			area: area && {
				start: area.start,
				end: area.end,
				tracks: area.paths.length ? new Set(withBelow(model.tracksOf(area), model.tracks.peek())) : null
			},
			outlines,
			flows: detail && selected ? drawnFlows(detail) : [],
			path: model.path.flows.peek(),
			compared: compared.map((e) => ({
				start: e.start,
				end: e.start + e.duration
			}))
		};
	}
	rowAt(y) {
		const all = placed(this.model.rows.shown.peek(), this.scroller?.scrollTop ?? 0, this.model.height.peek());
		const top = this.model.rows.shown.peek().pinnedHeight;
		return all.find(({ row, y: at }) => y >= at && y < at + row.height && (row.pinned || y >= top || !top)) ?? null;
	}
	/** The item of the tiles that are here at a place of the rows. */
	hit(x, y) {
		const { model } = this;
		const found = this.rowAt(y);
		if (!found || !found.row.lanes) return null;
		const { row } = found;
		const lane = laneAt(row, y - found.y + row.y);
		const view = model.window.peek();
		const width = model.width.peek();
		const time = timeOf(x, view, width);
		const z = levelIn({
			view,
			width,
			cache: model.cache
		});
		const i = Math.max(0, Math.floor(time / 2 ** (z + 10)));
		const covering = model.cache.covering(row.track.track, z, i);
		for (const tile of [...covering.finer, covering.tile]) {
			if (tile?.kind !== "slices") continue;
			const k = itemAt(tile, lane, time, 3 / width * lengthOf(view));
			if (k >= 0) return {
				track: row.track,
				lane,
				event: tile.event[k],
				name: tile.name[k],
				category: model.names.peek().categories[tile.name[k]] ?? 0,
				start: tile.start[k],
				end: tile.end[k],
				count: tile.count[k],
				busy: tile.busy[k] / 255,
				nesting: nestingOf(tile, lane, k),
				x,
				y
			};
		}
		return null;
	}
	/** The lane of an event of exactly a stretch, in the tiles that are here. */
	laneOf(start, end) {
		const { model } = this;
		const { pinned, rows } = model.rows.shown.peek();
		const z = levelIn({
			view: model.window.peek(),
			width: model.width.peek(),
			cache: model.cache
		});
		for (const row of [...pinned, ...rows]) {
			const tile = row.lanes ? model.cache.covering(row.track.track, z, Math.max(0, Math.floor(start / 2 ** (z + 10)))).tile : null;
			if (tile?.kind !== "slices") continue;
			const unit = 2 ** Math.max(0, tile.z - 8);
			for (let lane = 0; lane < row.lanes; lane++) {
				const k = itemAt(tile, lane, (start + end) / 2, 0);
				if (k >= 0 && tile.count[k] === 1 && Math.abs(tile.start[k] - start) <= unit && Math.abs(tile.end[k] - end) <= 2 * unit) return {
					row,
					lane
				};
			}
		}
		return null;
	}
	/** Scrolls to a lane, unless it is in sight. */
	toLane(row, lane, part = .5) {
		const el = this.scroller;
		if (!el || row.pinned || !row.lanes) return;
		const top = laneTop(row, Math.min(lane, row.lanes - 1));
		const room = el.clientHeight - this.model.rows.shown.peek().pinnedHeight;
		if (top < el.scrollTop || top + row.lane > el.scrollTop + room) el.scrollTop = Math.max(0, top - room * part);
	}
	/** Scrolls to the begin of a row, unless it is in sight. */
	toRow(row) {
		const el = this.scroller;
		if (!el || row.pinned) return;
		const room = el.clientHeight - this.model.rows.shown.peek().pinnedHeight;
		if (row.y < el.scrollTop) el.scrollTop = row.y;
		else if (row.y + Math.min(row.height, 40) > el.scrollTop + room) el.scrollTop = row.y + Math.min(row.height, 40) - room;
	}
	/** A time moved to the edge of an event near by, or of a step, a phase or a mark. */
	snapped(x, y, free) {
		const view = this.model.window.peek();
		const width = this.model.width.peek();
		const time = timeOf(x, view, width);
		if (free) return time;
		const item = this.hit(x, y);
		const shape = this.model.shape.peek();
		const bands = [...shape?.steps ?? [], ...shape?.phases ?? []];
		const edges = [
			...item ? [item.start, item.end] : [],
			...bands.flatMap((s) => [s.start_ns, s.end_ns]),
			...this.model.marks.peek()
		];
		let best = time;
		let least = SNAP / width * lengthOf(view);
		for (const edge of edges) if (Math.abs(edge - time) < least) [best, least] = [edge, Math.abs(edge - time)];
		return best;
	}
	hover(x, y) {
		const { model } = this;
		const item = this.hit(x, y);
		const old = model.hover.peek();
		model.pointer = timeOf(x, model.window.peek(), model.width.peek());
		if (item || old) model.hover.value = item;
		model.reading.value = item ? null : this.read(x, y);
		window.clearTimeout(this.linkTimer);
		if (item && !model.embedded) this.linkTimer = window.setTimeout(() => void model.hoverDetail(item), LINKS_AFTER);
		this.schedule();
	}
	leave() {
		window.clearTimeout(this.linkTimer);
		this.model.pointer = null;
		this.model.hover.value = this.model.reading.value = null;
		this.schedule();
	}
	/** What a counter or a group says at a place of the rows. */
	read(x, y) {
		const { model } = this;
		const track = this.rowAt(y)?.row.track;
		const [view, width] = [model.window.peek(), model.width.peek()];
		const time = timeOf(x, view, width);
		if (!track || time < 0 || time > model.all.peek().end) return null;
		const z = levelIn({
			view,
			width,
			cache: model.cache
		});
		const rows = readingOf(track, model.cache.covering(track.track, z, Math.floor(time / 2 ** (z + 10))), time, model.shape.peek()?.categories ?? []);
		return rows && {
			track,
			time,
			rows,
			x,
			y
		};
	}
};
/** Calls `then` whenever a CSS pixel has another number of device pixels: the page is zoomed, or on another screen. Returns how to end that. */
function onRatio(then) {
	let media = window.matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`);
	const changed = () => {
		media.removeEventListener("change", changed);
		media = window.matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`);
		media.addEventListener("change", changed);
		then();
	};
	media.addEventListener("change", changed);
	return () => media.removeEventListener("change", changed);
}
/** Watches the size of a canvas in device pixels, which changes with another ratio, too; elsewhere in CSS pixels. */
function watch(watcher, canvas) {
	try {
		watcher.observe(canvas, { box: "device-pixel-content-box" });
	} catch {
		watcher.observe(canvas);
	}
}
/** Rows of the overview: devices, or processes where there is none. */
function overviewRows(model) {
	const groups = model.rows.groups();
	const devices = groups.filter((t) => t.kind === "device");
	return devices.length ? devices : groups.filter((t) => t.kind === "process");
}
function Plot({ model, height, onOpen }) {
	const keep = T$1(null);
	const surface = keep.current ??= new Surface(model, model.embedded);
	const box = T$1(null);
	A$1(() => x$1(() => {
		model.window.value, model.rows.shown.value, model.hover.value, model.hovered.value, model.detail.value, model.selected.value, model.area.value, model.marks.value, model.finder.state.value, model.patterns.value, model.drawn.value, model.names.value, model.width.value, model.height.value, model.shape.value, model.compared.value, model.path.flows.value, dark.value;
		surface.schedule();
	}), []);
	A$1(() => {
		const el = surface.body;
		const measure = () => {
			model.width.value = Math.max(40, el.clientWidth);
			model.height.value = el.clientHeight;
			surface.schedule();
		};
		const watcher = new ResizeObserver((entries) => {
			surface.sized(entries);
			measure();
		});
		for (const canvas of [el, surface.head]) watch(watcher, canvas);
		measure();
		const shown = () => surface.schedule();
		document.addEventListener("visibilitychange", shown);
		const endRatio = onRatio(shown);
		el.addEventListener("contextrestored", shown);
		const wheel = (event) => onWheel(surface, event, el);
		const headWheel = (event) => onWheel(surface, event, surface.head);
		el.addEventListener("wheel", wheel, { passive: false });
		surface.head.addEventListener("wheel", headWheel, { passive: false });
		box.current.timeline = surface;
		return () => {
			watcher.disconnect();
			document.removeEventListener("visibilitychange", shown);
			endRatio();
			surface.stop();
		};
	}, []);
	A$1(() => {
		if (surface.scroller && Math.abs(surface.scroller.scrollTop - model.scroll.peek()) > 1) surface.scroller.scrollTop = model.scroll.peek();
	}, [model.scroll.value, model.shape.value]);
	useSignalEffect(() => {
		const found = model.detail.value;
		const row = found && model.rows.rowOf(found.track);
		if (found && row) surface.toLane(row, found.lane);
	});
	useSignalEffect(() => {
		const [part, drawn] = [model.highlight[0], model.drawn.value];
		const key = part && JSON.stringify(part);
		if (!model.embedded || !part || !drawn || key === surface.proven) return;
		const found = surface.laneOf(part[0], part[1]);
		if (!found) return;
		surface.proven = key;
		surface.toLane(found.row, found.lane, .7);
	});
	const parts = surface.parts();
	const shown = model.rows.shown.value;
	return /* @__PURE__ */ a("div", {
		class: "tl-plot",
		ref: box,
		children: [/* @__PURE__ */ a("div", {
			class: "tl-head",
			children: [/* @__PURE__ */ a(HeadLabels, {
				model,
				parts
			}), /* @__PURE__ */ a("canvas", {
				ref: (el) => {
					surface.head = el;
				},
				class: "tl-canvas-head",
				style: { height: `${parts.height}px` },
				"aria-hidden": "true",
				onPointerDown: (e) => headDown(surface, e),
				onPointerMove: (e) => headMove(surface, e),
				onPointerUp: (e) => headUp(surface, e),
				onPointerLeave: () => surface.leave(),
				onDblClick: (e) => headDouble(surface, e)
			})]
		}), /* @__PURE__ */ a("div", {
			class: "tl-body",
			ref: (el) => {
				surface.scroller = el;
			},
			style: { height: `${height}px` },
			onScroll: (e) => {
				model.scrolled(e.currentTarget.scrollTop);
				surface.schedule();
			},
			children: /* @__PURE__ */ a("div", {
				class: "tl-space",
				style: { height: `${shown.height + shown.pinnedHeight}px` },
				children: [/* @__PURE__ */ a("canvas", {
					ref: (el) => {
						surface.body = el;
					},
					class: "tl-canvas",
					role: "img",
					"aria-label": "Events by time: rows of threads, streams and counters; the keys of the timeline move through them",
					style: { height: `${height}px` },
					onPointerDown: (e) => bodyDown(surface, e),
					onPointerMove: (e) => bodyMove(surface, e),
					onPointerUp: (e) => bodyUp(surface, e, onOpen),
					onPointerLeave: () => {
						if (!surface.drag) surface.leave();
					},
					onPointerCancel: () => {
						surface.drag = surface.dragSpan = null;
					},
					onDblClick: () => model.fit()
				}), /* @__PURE__ */ a(Tree, {
					model,
					from: model.scroll.value,
					height,
					toRow: (row) => surface.toRow(row)
				})]
			})
		})]
	});
}
function HeadLabels({ model, parts }) {
	const shape = model.shape.value;
	const rows = shape ? overviewRows(model) : [];
	const device = rows[0]?.kind === "device";
	return /* @__PURE__ */ a("div", {
		class: "tl-side",
		style: { height: `${parts.height}px` },
		children: [
			parts.overview[1] > 0 && /* @__PURE__ */ a("div", {
				class: "tl-side-overview",
				style: { height: `46px` },
				children: [/* @__PURE__ */ a("strong", { children: "Everything" }), /* @__PURE__ */ a("span", {
					class: "quiet",
					children: device ? rows.length > 1 ? `use of ${rows.length} devices` : `${rows[0].label} use` : "host use"
				})]
			}),
			/* @__PURE__ */ a("div", {
				class: "tl-side-ruler quiet",
				style: { height: `${parts.ruler[1] - parts.ruler[0]}px` },
				"data-tip": shape ? clockTip(model) : void 0,
				children: shape && (methodOf(model) || (shape.absolute ? "time" : "time, no base clock"))
			}),
			parts.steps && /* @__PURE__ */ a("div", {
				style: { height: `17px` },
				children: "Steps"
			}),
			parts.phases && /* @__PURE__ */ a("div", {
				style: { height: `${parts.phases[1] - parts.phases[0]}px` },
				children: "Phases"
			})
		]
	});
}
function clockTip(model) {
	const shape = model.shape.value;
	const lines = shape.alignment.map((a) => `${a.worker || "recording"}: ${a.text}${a.uncertainty_ns ? `, ± ${a.uncertainty_ns} ns` : ""}`);
	return [
		"Drag the ruler to pan (A, D), click it to mark a time (M)",
		`ns after the first event${shape.origin_ns ? `, which began ${shape.origin_ns} ns after the epoch` : ""}`,
		...lines.slice(0, 12)
	].join("\n");
}
// src/sections/timeline/timeline.tsx
/** px of the whole timeline's rows: at least, and left free of the window. */
var LEAST$1 = 240;
var AROUND$2 = 330;
var MOST_WORKERS = 64;
/** Parts of a stretch that its begin and end are told to, in words. */
var FINE = 1e3;
var canDraw = () => {
	try {
		return !!document.createElement("canvas").getContext("2d");
	} catch {
		return false;
	}
};
/** Workers whose timelines stand under each other, how they are aligned, and the layout that the server makes. */
function placesOf(report, keys) {
	const where = requestOf(report)?.where;
	const capture = where?.capture ?? "";
	const all = keys["lay"] === "worker";
	const lay = keys["lay"] === "compact" ? "compact" : "";
	const now = choice.value?.state === "chosen" ? choice.value.chosen : null;
	const others = all && now ? now.run.workers.slice(0, MOST_WORKERS) : [];
	if (others.length > 1) return {
		run: now.run.name,
		capture,
		al: keys["al"] ?? "",
		lay,
		workers: others.map((w) => w.name),
		spans: others.map((w) => w.name === where?.worker ? where.span ?? "" : w.spans.at(-1)?.name ?? "")
	};
	return {
		run: where?.run ?? "",
		capture,
		al: "",
		lay,
		workers: [where?.worker ?? ""],
		spans: [where?.span ?? ""]
	};
}
function Timeline({ s, report, cards }) {
	const embedded = report.analysis !== "timeline";
	const places = placesOf(report, embedded ? {} : view.value.timeline);
	const model = w$2(() => new TimelineModel(s, places, embedded), []);
	A$1(() => {
		model.start();
		return () => model.stop();
	}, []);
	const key = JSON.stringify([
		places,
		s.start_ns,
		s.end_ns
	]);
	const before = T$1(key);
	A$1(() => {
		if (before.current === key) return;
		before.current = key;
		model.update(s, places);
	}, [key]);
	const drawable = w$2(canDraw, []);
	if (embedded) return /* @__PURE__ */ a(Small, {
		s,
		model,
		drawable
	});
	return /* @__PURE__ */ a(Whole, {
		s,
		model,
		report,
		cards,
		drawable
	});
}
function Small({ s, model, drawable }) {
	const { shown, shape } = {
		shown: model.rows.shown.value,
		shape: model.shape.value
	};
	const link = linkView({
		analysis: "timeline",
		query: s.start_ns != null && s.end_ns != null ? {
			t: spanText(model.window.value),
			...s.highlight?.[0] && { area: spanText({
				start: s.highlight[0][0],
				end: s.highlight[0][1]
			}) }
		} : {}
	});
	const height = Math.min(s.height || 220, Math.max(40, shown.height + shown.pinnedHeight));
	return /* @__PURE__ */ a("div", {
		class: "tl tl-small",
		"data-ready": shape ? "" : void 0,
		children: [
			/* @__PURE__ */ a(Failure, { model }),
			drawable ? /* @__PURE__ */ a(Plot, {
				model,
				height,
				onOpen: () => change(link, "push")
			}) : /* @__PURE__ */ a(EventTable, {
				model,
				why: NO_CANVAS
			}),
			/* @__PURE__ */ a("div", {
				class: "tl-foot",
				children: [/* @__PURE__ */ a("span", {
					class: "quiet",
					children: model.highlight.map(([, , word]) => word).filter(Boolean).join(" · ")
				}), /* @__PURE__ */ a(ViewLink, {
					view: link,
					class: "link",
					children: "Open in the timeline"
				})]
			}),
			/* @__PURE__ */ a(HoverCard, { model })
		]
	});
}
var NO_CANVAS = "This browser gives no canvas to draw on, so the events are listed instead.";
function Failure({ model }) {
	const error = model.error.value;
	if (!error) return null;
	return /* @__PURE__ */ a(Notice, {
		notice: {
			level: "error",
			text: `**The timeline could not be read:** ${error.body.message} ${error.body.hint ?? ""}`
		},
		children: /* @__PURE__ */ a("button", {
			type: "button",
			class: "link",
			onClick: () => model.again(),
			children: "Try again"
		})
	});
}
function Whole({ s, model, report, cards, drawable }) {
	const root = T$1(null);
	const searchBox = T$1(null);
	const trackBox = T$1(null);
	const [table, setTable] = d$2(!drawable);
	const [help, setHelp] = d$2(false);
	const shape = model.shape.value;
	const shown = model.rows.shown.value;
	const height = Math.max(LEAST$1, Math.min(shown.height + shown.pinnedHeight, s.height || window.innerHeight - AROUND$2));
	const keys = (event) => {
		if (help && event.key === "Escape") {
			setHelp(false);
			return event.preventDefault();
		}
		if (!onKey(event, model, {
			search: () => searchBox.current?.focus(),
			findTrack: () => trackBox.current?.focus(),
			help: () => setHelp(!help),
			table: () => setTable(!table)
		})) return;
		event.preventDefault();
		event.stopPropagation();
	};
	const request = requestOf(report);
	return /* @__PURE__ */ a("div", {
		class: "tl",
		ref: root,
		tabIndex: 0,
		role: "group",
		"aria-label": "Timeline",
		"aria-describedby": "tl-live",
		onKeyDown: keys,
		"data-ready": shape ? "" : void 0,
		onPointerDown: (e) => {
			if (!e.target.closest("input,button,a,select,table")) root.current?.focus({ preventScroll: true });
		},
		children: [
			/* @__PURE__ */ a(Failure, { model }),
			model.notice.value && /* @__PURE__ */ a(Notice, {
				notice: {
					level: "warn",
					text: model.notice.value
				},
				children: /* @__PURE__ */ a("button", {
					type: "button",
					class: "link",
					onClick: () => {
						model.notice.value = "";
					},
					children: "Dismiss"
				})
			}),
			/* @__PURE__ */ a(Tools, {
				model,
				searchBox,
				trackBox,
				table,
				onTable: () => setTable(!table),
				onHelp: () => setHelp(!help)
			}),
			shape && /* @__PURE__ */ a(Clock, { model }),
			/* @__PURE__ */ a("div", { class: `tl-progress ${model.waiting.value ? "on" : ""}` }),
			help && /* @__PURE__ */ a(KeyCard, { onClose: () => setHelp(false) }),
			drawable && /* @__PURE__ */ a(Plot, {
				model,
				height
			}),
			shape && !shape.events && /* @__PURE__ */ a("p", {
				class: "prose pad",
				children: "This recording has no event with a time. Record at least one step with the profiler."
			}),
			/* @__PURE__ */ a("p", {
				class: "sr",
				id: "tl-live",
				"aria-live": "polite",
				children: liveText(model)
			}),
			table && /* @__PURE__ */ a(EventTable, {
				model,
				why: drawable ? "" : NO_CANVAS
			}),
			/* @__PURE__ */ a(HoverCard, { model }),
			/* @__PURE__ */ a(Detail, { model }),
			/* @__PURE__ */ a(AreaReport, {
				model,
				where: request?.where ?? null,
				device: view.value.device,
				cards: cards ?? (() => null)
			})
		]
	});
}
/** View and selection in words. */
function liveText(model) {
	const [now, event, area] = [
		model.window.value,
		model.detail.value,
		model.area.value
	];
	const track = event && model.tracks.value[event.track];
	const [one, other] = model.compared.value.map((e) => ({
		start: e.start,
		end: e.start + e.duration
	}));
	const apart = one && other && gapText(one, other);
	return [
		`Shows ${moment(now.start, lengthOf(now) / FINE)} to ${moment(now.end, lengthOf(now) / FINE)}.`,
		event && `Selected: ${event.name}, ${human(event.duration_ns, "ns")}, starts at ${moment(event.start_ns, lengthOf(now) / FINE)}, on ${track?.path ?? ""}, depth ${event.depth}.`,
		apart && `Measured: ${apart}.`,
		area && `Area: ${moment(area.start, lengthOf(area) / FINE)} to ${moment(area.end, lengthOf(area) / FINE)}.`
	].filter(Boolean).join(" ");
}
function Tools({ model, searchBox, trackBox, table, onTable, onHelp }) {
	const shape = model.shape.value;
	const tally = model.tally.value;
	const patterns = model.patterns.value;
	const letters = lettersOf((shape?.categories ?? []).map((c) => c.label));
	const categories = shownOf$1(shape?.categories ?? [], new Set(model.names.value.categories));
	return /* @__PURE__ */ a("div", {
		class: "tl-tools",
		children: [
			/* @__PURE__ */ a(SearchField, {
				model,
				box: searchBox
			}),
			/* @__PURE__ */ a("label", {
				class: "find tl-track-find",
				"data-tip": "Rows by name, worker, process, device or kind (T)",
				children: [
					/* @__PURE__ */ a(Icon, { name: "filter" }),
					/* @__PURE__ */ a("input", {
						ref: trackBox,
						class: "tl-input",
						type: "search",
						placeholder: "Find a row",
						"aria-label": "Find a row",
						value: model.rows.arrangement.value.find,
						onInput: (e) => model.rows.filter(e.currentTarget.value),
						onKeyDown: leaveOnEscape
					}),
					/* @__PURE__ */ a("kbd", { children: "T" })
				]
			}),
			/* @__PURE__ */ a("div", {
				class: "tl-buttons",
				children: [
					/* @__PURE__ */ a("button", {
						type: "button",
						class: "ghost",
						"aria-label": "Zoom in",
						"data-tip": "Zoom in (W, +, Ctrl + wheel)",
						onClick: () => model.zoom(.6),
						children: /* @__PURE__ */ a(Icon, { name: "plus" })
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: "ghost",
						"aria-label": "Zoom out",
						"data-tip": "Zoom out (S, -)",
						onClick: () => model.zoom(1 / .6),
						children: /* @__PURE__ */ a(Icon, { name: "minus" })
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: "ghost",
						"aria-label": "Back",
						"data-tip": "Back to the last place (Alt + ←)",
						onClick: () => model.history(-1),
						children: /* @__PURE__ */ a(Icon, { name: "left" })
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: "ghost",
						"aria-label": "Forward",
						"data-tip": "Forward (Alt + →)",
						onClick: () => model.history(1),
						children: /* @__PURE__ */ a(Icon, { name: "right" })
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: "button",
						"data-tip": "Zoom to the selection; again: fill the view. Without one: the step",
						onClick: () => model.fit(),
						children: ["Fit ", /* @__PURE__ */ a("kbd", { children: "F" })]
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: "button",
						"data-tip": "The whole recording",
						onClick: () => model.everything(),
						children: ["All ", /* @__PURE__ */ a("kbd", { children: "0" })]
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: `button ${model.path.on.value ? "on" : ""}`,
						"aria-pressed": model.path.on.value,
						disabled: !model.path.there,
						"data-tip": !model.path.there ? LIVE : "The critical path of each step: what holds its end, back to its start",
						onClick: () => model.togglePath(),
						children: "Path"
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: `button ${table ? "on" : ""}`,
						"aria-pressed": table,
						disabled: inFile,
						"data-tip": inFile ? LIVE : "The events in view as a table (L)",
						onClick: onTable,
						children: "Table"
					}),
					!inFile && /* @__PURE__ */ a(TraceFile, { model }),
					/* @__PURE__ */ a(More, {
						model,
						onHelp
					})
				]
			}),
			/* @__PURE__ */ a("div", {
				class: "tl-line",
				children: [/* @__PURE__ */ a("div", {
					class: "tl-legend",
					role: "group",
					"aria-label": "Colors",
					children: (patterns ? categories.map((c) => [c]) : ofOneFill(categories)).map((all) => /* @__PURE__ */ a("span", { children: [
						/* @__PURE__ */ a("i", { style: { background: patterns ? striped(fillOf(all[0]), shape.categories.indexOf(all[0])) : fillOf(all[0]) } }),
						patterns && /* @__PURE__ */ a("b", { children: letters[shape.categories.indexOf(all[0])] }),
						all.map((c) => c.label.toLowerCase()).join(", ")
					] }))
				}), /* @__PURE__ */ a("span", {
					class: "tl-tally quiet",
					"data-tip": "Events in view on the open rows; those shorter than a pixel are merged and counted, never left out",
					children: shape ? `${human(tally.items, "count")} items of ${tally.more ? "≥ " : ""}${human(tally.events, "count")} events` : "reading…"
				})]
			})
		]
	});
}
/** A fill with the stripes of its category, for a square of the legend. */
function striped(fill, category) {
	const { period, at } = stripesOf(category);
	return `repeating-linear-gradient(90deg, ${Array.from({ length: period }, (_, x) => `${at.includes(x) ? stripeOn(fill) : fill} ${x}px ${x + 1}px`).join(", ")})`;
}
/** The categories that names have, each followed by its kinds; of kinds also what they are of: summaries have its color. */
function shownOf$1(categories, used) {
	const there = categories.filter((_, k) => used.has(k));
	const all = categories.filter((c) => there.includes(c) || there.some((k) => k.of === c.name));
	return all.filter((c) => !c.of).flatMap((c) => [c, ...all.filter((k) => k.of === c.name)]);
}
/** Categories of one color together. */
function ofOneFill(categories) {
	const out = /* @__PURE__ */ new Map();
	for (const c of categories) out.set(fillOf(c), [...out.get(fillOf(c)) ?? [], c]);
	return [...out.values()];
}
var leaveOnEscape = (event) => {
	if (event.key !== "Escape") return;
	event.stopPropagation();
	event.currentTarget.closest(".tl")?.focus();
};
function SearchField({ model, box }) {
	const search = model.finder.state.value;
	const keys = (event) => {
		if (event.key === "Enter") model.finder.step(event.shiftKey ? -1 : 1);
		else if (event.key === "Escape") {
			model.finder.find("", "quiet");
			leaveOnEscape(event);
		} else return;
		event.preventDefault();
		event.stopPropagation();
	};
	const hidden = hiddenHits(model);
	return /* @__PURE__ */ a("div", {
		class: "tl-search",
		children: [/* @__PURE__ */ a("label", {
			class: "find",
			"data-tip": inFile ? LIVE : "Names on all rows, hidden ones too; /text/ is a regular expression (/)",
			children: [
				/* @__PURE__ */ a(Icon, { name: "search" }),
				/* @__PURE__ */ a("input", {
					ref: box,
					class: "tl-input find-input",
					type: "search",
					placeholder: "Find by name",
					"aria-label": "Find events by name",
					disabled: inFile,
					value: search.text,
					onInput: (e) => void model.finder.find(e.currentTarget.value),
					onKeyDown: keys
				}),
				/* @__PURE__ */ a("kbd", { children: "/" })
			]
		}), search.text && /* @__PURE__ */ a("span", {
			class: "tl-found",
			role: "status",
			children: [search.wrong ? /* @__PURE__ */ a("span", {
				class: "warn-text",
				children: search.wrong
			}) : search.hits ? `${human(search.hits.total, "count")} found${hidden ? `, ${human(hidden, "count")} on hidden rows` : ""}` : "searching…", !search.wrong && !!search.hits?.total && /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("button", {
				type: "button",
				class: "ghost",
				"aria-label": "Previous hit",
				"data-tip": "Previous hit (Shift + N)",
				onClick: () => void model.finder.step(-1),
				children: /* @__PURE__ */ a(Icon, { name: "left" })
			}), /* @__PURE__ */ a("button", {
				type: "button",
				class: "ghost",
				"aria-label": "Next hit",
				"data-tip": "Next hit (N)",
				onClick: () => void model.finder.step(1),
				children: /* @__PURE__ */ a(Icon, { name: "right" })
			})] })]
		})]
	});
}
function hiddenHits(model) {
	const { pinned, rows } = model.rows.shown.value;
	const seen = new Set([...pinned, ...rows].map((r) => r.track.track));
	return (model.finder.state.value.hits?.tracks ?? []).filter((t) => !seen.has(t.track)).reduce((sum, t) => sum + t.count, 0);
}
function More({ model, onHelp }) {
	const { layout, hidden, pinned } = model.rows.arrangement.value;
	const others = [{
		value: "compact",
		text: "Compact streams"
	}, ...(choice.value?.state === "chosen" ? choice.value.chosen.run.workers.length : 1) > 1 ? [{
		value: "worker",
		text: "All workers"
	}] : []];
	const choices = [{
		value: "",
		text: "By process"
	}, ...inFile ? [] : others];
	return /* @__PURE__ */ a(Popover, {
		button: /* @__PURE__ */ a(Icon, { name: "menu" }),
		class: "ghost",
		label: "Rows and view",
		tip: "Rows and view",
		align: "right",
		children: (close) => /* @__PURE__ */ a("div", {
			class: "tl-menu",
			children: [
				/* @__PURE__ */ a(Switch, {
					label: "Rows",
					value: layout,
					choices,
					onPick: (value) => model.rows.layout(value)
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					onClick: () => model.rows.expandAll(),
					children: ["Open or close all rows ", /* @__PURE__ */ a("kbd", { children: "Shift+E" })]
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					disabled: !hidden.length,
					onClick: () => model.rows.showHidden(),
					children: [
						"Show ",
						hidden.length,
						" hidden rows"
					]
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					disabled: !pinned.length,
					onClick: () => model.rows.unpin(),
					children: [
						"Unpin ",
						pinned.length,
						" rows"
					]
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					"aria-pressed": model.patterns.value,
					onClick: () => {
						model.patterns.value = !model.patterns.peek();
					},
					children: [model.patterns.value ? "No patterns" : "Patterns", " and letters for kinds of work"]
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					onClick: () => model.chooseView(),
					children: ["The view as an area ", /* @__PURE__ */ a("kbd", { children: "Ctrl+A" })]
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					onClick: () => model.markMiddle(),
					children: ["Mark the time in the middle ", /* @__PURE__ */ a("kbd", { children: "M" })]
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					disabled: !model.marks.value.length,
					onClick: () => model.nextMark(),
					children: ["Next mark ", /* @__PURE__ */ a("kbd", { children: "Shift+M" })]
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					"aria-pressed": model.paneOpen.value,
					onClick: () => {
						model.paneOpen.value = !model.paneOpen.peek();
					},
					children: [
						model.paneOpen.value ? "Hide" : "Show",
						" details of the selection ",
						/* @__PURE__ */ a("kbd", { children: "Q" })
					]
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					onClick: () => {
						close();
						onHelp();
					},
					children: ["Keys of the timeline ", /* @__PURE__ */ a("kbd", { children: "?" })]
				})
			]
		})
	});
}
/** How the clocks of several workers were put beside each other, what is not shown, and events far outside of the others. */
function Clock({ model }) {
	const shape = model.shape.value;
	const unknown = shape.alignment.length > 1 && shape.alignment.some((a) => a.method === "none");
	const far = shape.outliers.reduce((sum, o) => sum + o.events, 0);
	const apart = shape.alignment.length > 1 ? gapOf(model) : "";
	const step = shape.alignments?.some((w) => w.al === "step" && !w.why_not);
	if (!unknown && !far && !shape.notice && shape.alignment.length < 2) return null;
	return /* @__PURE__ */ a("div", {
		class: "tl-clock",
		children: [
			shape.alignment.length > 1 && /* @__PURE__ */ a(Alignment, { model }),
			unknown && /* @__PURE__ */ a(Notice, { notice: {
				level: "warn",
				text: "The clocks of these workers are not known to each other: each begins at its own first event, and nothing can be said about what happened at once."
			} }),
			shape.notice && /* @__PURE__ */ a(Notice, { notice: {
				level: "info",
				text: shape.notice
			} }),
			apart && /* @__PURE__ */ a(Notice, {
				notice: {
					level: "warn",
					text: `These recordings do not overlap: ${apart}.`
				},
				children: step && /* @__PURE__ */ a("button", {
					type: "button",
					class: "link",
					onClick: () => model.align("step"),
					children: "Put the starts of a step beside each other"
				})
			}),
			far > 0 && /* @__PURE__ */ a(Notice, {
				notice: {
					level: "info",
					text: `${human(far, "count")} ${far === 1 ? "event lies" : "events lie"} far outside of where nearly all are.`
				},
				children: /* @__PURE__ */ a("button", {
					type: "button",
					class: "link",
					onClick: () => {
						const at = shape.outliers[0].time_ns;
						model.show({
							start: at - 1e6,
							end: at + 1e6
						}, true);
					},
					children: "Show the first"
				})
			})
		]
	});
}
/** Where one worker's events end before another's begin: whose, and by how much. */
function gapOf(model) {
	const { alignment } = model.shape.value;
	const spans = alignment.map((a, k) => {
		const own = model.tracks.value.filter((t) => t.worker === k && t.events > 0);
		return {
			name: a.worker,
			start: Math.min(...own.map((t) => t.first_ns)),
			end: Math.max(...own.map((t) => t.last_ns))
		};
	}).filter((s) => s.end >= s.start).sort((a, b) => a.start - b.start);
	let end = spans[0];
	for (const next of spans.slice(1)) {
		if (next.start > end.end) return `${next.name} begins ${human(next.start - end.end, "ns")} after the end of ${end.name}`;
		if (next.end > end.end) end = next;
	}
	return "";
}
function KeyCard({ onClose }) {
	return /* @__PURE__ */ a("div", {
		class: "tl-keys",
		role: "dialog",
		"aria-label": "Keys of the timeline",
		children: [
			/* @__PURE__ */ a("div", {
				class: "dialog-head",
				children: [/* @__PURE__ */ a("h2", { children: "Keys of the timeline" }), /* @__PURE__ */ a("button", {
					type: "button",
					class: "ghost",
					"aria-label": "Close",
					onClick: onClose,
					children: /* @__PURE__ */ a(Icon, { name: "close" })
				})]
			}),
			/* @__PURE__ */ a("dl", {
				class: "keys-list",
				children: KEYS$1.map(([k, text]) => /* @__PURE__ */ a("div", { children: [/* @__PURE__ */ a("dt", { children: k.split(" ").map((one) => /* @__PURE__ */ a("kbd", { children: one })) }), /* @__PURE__ */ a("dd", { children: text })] }))
			}),
			/* @__PURE__ */ a("p", {
				class: "quiet",
				children: "Drag selects an area, Shift + drag and drag on the ruler pan, a click on the ruler marks, Ctrl + click measures the gap to another event, a double click zooms to the selection."
			})
		]
	});
}
// src/sections/table/stretch.ts
/** ns around a stretch of the timeline, at least, and as parts of it. */
var LEAST_AROUND = 2e3;
var AROUND$1 = 1.5;
/** px of a small timeline below a row. */
var HEIGHT = 190;
/** The time of a row, ns after the begin of the timeline; null where its table says none. */
function stretchOf(s, index) {
	const on = s.timeline;
	const [start, duration] = on ? [cell(s, on.start, index), cell(s, on.duration, index)] : [null, null];
	if (!on || typeof start !== "number" || typeof duration !== "number") return null;
	const from = Math.round(start + (on.offset_ns ?? 0));
	const to = Math.round(start + (on.offset_ns ?? 0) + Math.max(duration, 1));
	const room = Math.max((to - from) * AROUND$1, LEAST_AROUND);
	return {
		start: from,
		end: to,
		from: Math.max(0, Math.round(from - room)),
		to: Math.round(to + room)
	};
}
/** The way to the timeline from a row: of a row that sums many calls, to the one that stands for it. */
function timelineLink(s, index) {
	const at = stretchOf(s, index);
	return at ? {
		analysis: "timeline",
		query: {
			t: `${at.from}-${at.to}`,
			area: `${at.start}-${at.end}`
		},
		label: s.timeline.what ? `Show ${s.timeline.what} in the timeline` : "Show in timeline"
	} : void 0;
}
/** A small timeline of a row. */
function timelineOf(s, index) {
	const at = stretchOf(s, index);
	return at && {
		kind: "timeline",
		id: `${s.id}-stretch`,
		title: "",
		start_ns: at.from,
		end_ns: at.to,
		highlight: [[
			at.start,
			at.end,
			s.timeline.what ?? ""
		]],
		height: HEIGHT
	};
}
// src/sections/table/words.ts
/** Letters from which on a text may be cut in its cell. */
var LONG = 24;
/** The words of a row that stand cut or abbreviated in its cells; null for a row without any, unless there is more to show than words. */
function wordsOf(s, index, always = false) {
	const texts = s.columns.filter((c) => textual(c) && c.show !== "badge" && cell(s, c.name, index) !== null && c.name !== s.key);
	const named = texts.find((c) => (c.rank ?? 1) < 3);
	if (!named) return null;
	const title = String(cell(s, named.name, index));
	const whole = wholeText(s, named, index);
	const full = whole === title ? "" : whole;
	const rest = texts.filter((c) => c !== named && c.name !== named.full).map((c) => [c, wholeText(s, c, index)]).filter(([c, text]) => text.length > LONG && (c.rank ?? 1) < 3 && (c.show === "code" || c.show === "symbol" || c.show === "shapes"));
	return always || full || title.length > LONG || rest.length ? {
		title,
		full,
		rest
	} : null;
}
/** The place in the data of the selected row; -1 for one that is not there, or has not come. */
function indexOf(s, shown, key) {
	if (!key) return -1;
	const place = placeOf$2(s, shown, key);
	return shown.rows[place]?.index ?? -1;
}
// src/sections/table/card.tsx
function RowCard({ s, report, shown, selected, onClose }) {
	const index = indexOf(s, shown, selected);
	const when = index < 0 || report.analysis.startsWith("timeline") ? null : timelineOf(s, index);
	const words = index < 0 ? null : wordsOf(s, index, !!when);
	if (!words && !when) return null;
	const title = words?.title ?? selected;
	return /* @__PURE__ */ a("div", {
		class: "row-card",
		role: "group",
		"aria-label": `Selected: ${title}`,
		children: [
			/* @__PURE__ */ a("div", {
				class: "row-card-head",
				children: [
					/* @__PURE__ */ a("h3", {
						class: "mono",
						children: title
					}),
					/* @__PURE__ */ a(Copy, {
						class: "text-button",
						what: "the name",
						label: "Copy name in full",
						text: () => words?.full || title,
						children: "Copy name"
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: "ghost",
						"aria-label": "Clear the selection",
						"data-tip": "Esc",
						onClick: onClose,
						children: /* @__PURE__ */ a(Icon, {
							name: "close",
							size: 12
						})
					})
				]
			}),
			words?.full && /* @__PURE__ */ a("p", {
				class: "whole mono",
				children: words.full
			}),
			words?.rest.map(([c, text]) => /* @__PURE__ */ a("p", {
				class: "whole",
				children: [
					/* @__PURE__ */ a("span", {
						class: "quiet",
						children: c.label
					}),
					" ",
					/* @__PURE__ */ a("span", {
						class: "mono",
						children: c.show === "shapes" ? shapeText(text) : text
					})
				]
			})),
			when && /* @__PURE__ */ a(Timeline, {
				s: when,
				report
			})
		]
	});
}
// src/sections/table/cells.tsx
function Cell({ s, layoutOf, row, onToggle }) {
	const c = layoutOf.column;
	const at = String(row.index);
	const value = cell(s, c.name, row.index);
	const mark = s.marks?.[c.name]?.[at];
	const link = s.cell_links?.[c.name]?.[at] ?? (s.timeline?.column === c.name ? timelineLink(s, row.index) : void 0);
	if (c.show === "tree") return /* @__PURE__ */ a(TreeCell, {
		s,
		c,
		row,
		value,
		link,
		...onToggle && { onToggle }
	});
	return /* @__PURE__ */ a(Linked, {
		link,
		children: /* @__PURE__ */ a(Content$1, {
			s,
			layoutOf,
			index: row.index,
			value,
			mark
		})
	});
}
/** The same cell in the total row, where values come from `total`. */
function TotalCell({ s, layoutOf }) {
	const value = s.total?.[layoutOf.column.name];
	if (value === void 0) return null;
	if (value === null && !layoutOf.numeric) return null;
	return /* @__PURE__ */ a(Content$1, {
		s,
		layoutOf,
		index: -1,
		value,
		mark: s.marks?.[layoutOf.column.name]?.["total"]
	});
}
/** The sum over the shown rows of a filtered table: of a column whose rows add up. */
function ShownTotalCell({ s, layoutOf, shown }) {
	const c = layoutOf.column;
	if (!(c.name in shown.sums)) return null;
	const value = shown.sums[c.name] ?? 0;
	const total = Number(s.total?.[c.name]);
	return /* @__PURE__ */ a("span", {
		class: "num",
		"data-tip": [`${exact(value, c.unit ?? "")} in the shown rows`, c.show !== "share" && total > 0 && `${human(value / total, "ratio")} of ${human(total, c.unit ?? "")} in all`].filter(Boolean).join("\n"),
		children: inColumn(value, layoutOf.scale)
	});
}
var partsIn = (s, column) => pagedOf(s)?.partsOf(column) ?? partsOf$1(s.data[column] ?? []);
var Linked = ({ link, children }) => link ? /* @__PURE__ */ a(ViewLink, {
	view: linkView(link),
	class: "cell-link",
	tip: link.label ? plain(link.label) : void 0,
	children
}) : /* @__PURE__ */ a($, { children });
function Content$1({ s, layoutOf, index, value, mark }) {
	const c = layoutOf.column;
	if (value === null) return /* @__PURE__ */ a(Unknown, {
		c,
		mark
	});
	if (layoutOf.numeric && typeof value === "number") return /* @__PURE__ */ a(Numeric, {
		s,
		layoutOf,
		index,
		value,
		mark
	});
	if (typeof value === "boolean") return /* @__PURE__ */ a("span", {
		class: value ? "" : "quiet",
		children: value ? "yes" : "no"
	});
	const text = String(value);
	if (index < 0) return /* @__PURE__ */ a("span", {
		class: "ellipsis",
		children: text
	});
	switch (c.show) {
		case "badge": return /* @__PURE__ */ a($, { children: text.split(",").map((t) => t.trim()).filter(Boolean).map((t) => /* @__PURE__ */ a(Badge, {
			text: t,
			plain: isUnmarked(s, c.name)
		})) });
		case "code": return /* @__PURE__ */ a("span", {
			class: "mono",
			children: /* @__PURE__ */ a(Middle, {
				text,
				part: partsIn(s, c.name).get(text)
			})
		});
		case "shapes": return /* @__PURE__ */ a("span", {
			class: "mono quiet",
			children: /* @__PURE__ */ a(Middle, {
				text: shapeText(text),
				tip: text
			})
		});
		case "symbol": return /* @__PURE__ */ a(SymbolName, {
			name: text,
			full: wholeText(s, c, index),
			part: partsIn(s, c.name).get(text),
			member: String(c.color_by && cell(s, c.color_by, index) || c.color || (markOf$1(text) ? text : "other"))
		});
		default: return /* @__PURE__ */ a(Marked, {
			mark,
			children: /* @__PURE__ */ a("span", {
				class: "ellipsis",
				"data-tip": whyText(mark) || (text.length > 24 ? text : void 0),
				children: text
			})
		});
	}
}
function Unknown({ c, mark }) {
	const reason = mark && (mark.why || whyText(mark)) || c.missing || "";
	return /* @__PURE__ */ a("span", {
		class: "unknown",
		"data-tip": reason || void 0,
		"aria-label": reason ? `unknown: ${reason}` : "unknown",
		children: "—"
	});
}
function Numeric({ s, layoutOf, index, value, mark }) {
	const c = layoutOf.column;
	const tip = [exact(value, c.unit || (c.show === "share" || c.show === "efficiency" ? "ratio" : "")), whyText(mark)].filter(Boolean).join("\n");
	const text = inColumn(value, layoutOf.scale);
	const figure = /* @__PURE__ */ a("span", {
		class: "num",
		"data-tip": tip,
		children: /* @__PURE__ */ a(Marked, {
			mark,
			text,
			children: text
		})
	});
	if (index < 0 && c.show !== "efficiency") return figure;
	if (c.show === "bar") {
		const member = c.color_by && cell(s, c.color_by, index) || c.color || "bar-ink";
		return /* @__PURE__ */ a("div", {
			class: "with-bar",
			children: [/* @__PURE__ */ a(Bar$1, {
				parts: [[String(member), value]],
				full: layoutOf.full
			}), figure]
		});
	}
	if (c.show === "stack") {
		const parts = (c.parts ?? []).map((p, i) => [c.part_colors?.[i] ?? "other", Number(cell(s, p, index)) || 0]);
		const label = (c.parts ?? []).map((p, i) => `${s.columns.find((k) => k.name === p)?.label ?? p}: ${human(parts[i][1], c.unit)}`).join("\n");
		return /* @__PURE__ */ a("div", {
			class: "with-bar",
			children: [/* @__PURE__ */ a(Bar$1, {
				parts,
				full: layoutOf.full,
				tip: label
			}), figure]
		});
	}
	if (c.show === "efficiency") return /* @__PURE__ */ a("div", {
		class: "with-bar",
		children: [/* @__PURE__ */ a("div", {
			class: "bar-room",
			children: /* @__PURE__ */ a("div", {
				class: "eff",
				children: /* @__PURE__ */ a("span", { style: { width: `${Math.min(100, Math.max(0, value * 100))}%` } })
			})
		}), figure]
	});
	return figure;
}
function Bar$1({ parts, full, tip }) {
	return /* @__PURE__ */ a("div", {
		class: "bar-room",
		"data-tip": tip,
		children: /* @__PURE__ */ a("div", {
			class: "cellbar",
			children: parts.filter(([, v]) => v > 0).map(([member, v]) => /* @__PURE__ */ a("span", {
				class: PALE.has(member) ? "pale" : "",
				style: {
					width: full > 0 ? `max(1.5px, ${Math.min(100, v / full * 100)}%)` : "0",
					background: paint(member)
				}
			}))
		})
	});
}
var BADGE = {
	compute: ["bound-compute", "triangle-up"],
	memory: ["bound-memory", "bar"],
	"too large": ["error", "x"],
	tight: ["warn", "bar"]
};
var plainColumns = /* @__PURE__ */ new WeakMap();
/** Whether the `other` of a column is no kind of work, so that it has no mark: no other value of the column has one. */
function isUnmarked(s, column) {
	const values = s.data[column] ?? [];
	let plain = plainColumns.get(values);
	if (plain === void 0) {
		const named = new Set(values.flatMap((v) => typeof v === "string" ? v.split(",").map((t) => t.trim()) : []));
		plain = named.size > 1 && named.has("other") && [...named].every((t) => t === "other" || !(markOf$1(t) || BADGE[t]));
		plainColumns.set(values, plain);
	}
	return plain;
}
/** The mark that a value has wherever it stands: the shape of a kind or a direction, the glyph of a bound; null for other values. */
function ValueMark({ text }) {
	const bound = BADGE[text];
	const shape = bound?.[1] ?? markOf$1(text);
	return shape ? /* @__PURE__ */ a(Mark, {
		shape,
		color: paint(bound ? bound[0] : text)
	}) : null;
}
function Badge({ text, plain }) {
	const bound = BADGE[text];
	const mark = plain ? void 0 : markOf$1(text);
	const color = bound ? paint(bound[0]) : mark ? paint(text) : void 0;
	const shape = bound?.[1] ?? mark;
	return /* @__PURE__ */ a("span", {
		class: `badge ${bound ? "bound" : ""}`,
		style: bound ? {
			color,
			borderColor: `color-mix(in srgb, ${color} 42%, transparent)`
		} : void 0,
		children: [shape && color && /* @__PURE__ */ a(Mark, {
			shape,
			color
		}), text]
	});
}
var SymbolName = ({ name, member, full = name, part }) => /* @__PURE__ */ a("span", {
	class: "symbol",
	"aria-label": `${name}, ${member}`,
	children: [/* @__PURE__ */ a(Mark, {
		shape: markOf$1(member) ?? "circle",
		color: paint(member)
	}), /* @__PURE__ */ a("span", {
		class: "mono",
		children: /* @__PURE__ */ a(Middle, {
			text: name,
			tip: `${full}\n${member}`,
			part
		})
	})]
});
/** A path without the part that its parent's row says already. */
var tail = (text, above) => above && text.startsWith(above + "/") ? text.slice(above.length + 1) : text;
function TreeCell({ s, c, row, value, link, onToggle }) {
	const text = tail(String(value ?? ""), parentText(s, c.name, row.index));
	const merged = /^(.*?)\s+(\d+)×$/.exec(text);
	const name = merged ? merged[1] : text;
	const self = text.startsWith("self:") || row.last;
	return /* @__PURE__ */ a("div", {
		class: "tree-cell",
		children: [
			Array.from({ length: row.depth }, () => /* @__PURE__ */ a("span", { class: "guide" })),
			row.branch ? /* @__PURE__ */ a("button", {
				type: "button",
				class: `caret ${row.open ? "open" : ""}`,
				tabIndex: -1,
				"aria-label": row.open ? "Close" : "Open",
				onClick: (e) => {
					e.stopPropagation();
					onToggle?.(row);
				},
				children: /* @__PURE__ */ a(Icon, {
					name: "right",
					size: 14
				})
			}) : /* @__PURE__ */ a("span", { class: "caret" }),
			/* @__PURE__ */ a(Linked, {
				link,
				children: /* @__PURE__ */ a("span", {
					class: self ? "quiet" : "mono",
					children: c.color_by ? /* @__PURE__ */ a(SymbolName, {
						name,
						member: String(cell(s, c.color_by, row.index) ?? "other")
					}) : /* @__PURE__ */ a(Middle, { text: name })
				})
			}),
			merged && /* @__PURE__ */ a("span", {
				class: "badge",
				children: [merged[2], "×"]
			})
		]
	});
}
// src/sections/table/csv.ts
/** RFC 4180. A text that a spreadsheet would take for a formula gets a leading apostrophe; full-width signs are read as plain ones. */
function csvField(value) {
	if (value === null) return "";
	if (typeof value !== "string") return String(value);
	const text = /^[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]/.test(value) ? `'${value}` : value;
	return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, "\"\"")}"` : text;
}
function csvOf(s, columns, rows) {
	const lines = [columns.map((c) => csvField(c.name)).join(",")];
	for (const row of rows) lines.push(columns.map((c) => csvField(cell(s, c.name, row.index))).join(","));
	return lines.join("\r\n") + "\r\n";
}
/** One row for the clipboard: names and values in base units, tab separated, two lines; no name is abbreviated. */
function rowText(s, columns, index) {
	const clean = (value) => String(value ?? "").replace(/[\t\n\r]+/g, " ");
	return columns.map((c) => c.name).join("	") + "\n" + columns.map((c) => clean(c.full ? wholeText(s, c, index) : cell(s, c.name, index))).join("	");
}
// src/sections/table/filters.tsx
var CHIPS = 7;
/** Values of a column that a table in pages offers, at most (`MOST_VALUES` of the server). */
var OFFERED = 200;
/** The text of a chip: a yes or no column by its label, a plain number with the label, an empty value as a dash. */
var valueText = (value, label) => value === "true" ? label : value === "false" ? `not ${label[0].toLowerCase()}${label.slice(1)}` : /^-?\d+$/.test(value) ? `${label} ${value}` : value || "—";
/** `Device time` in lower case, for the inside of a sentence; names such as FLOP stay. */
var low = (label) => /^[A-Z][a-z]/.test(label) ? label[0].toLowerCase() + label.slice(1) : label;
/** A bound in the unit of its column, every digit that was typed. */
var inUnit = (value, l) => String(Number((value / l.scale.factor).toPrecision(6))).replace("-", "−");
var unitOf$2 = (l) => l.scale.name ? " " + l.scale.name : "";
/** `Time > 0.1 ms`, `0.1 < Time < 5 ms`. */
function rangeWords(range, l) {
	const { above, below } = range;
	if (above !== null && below !== null) return `${inUnit(above, l)} < ${l.column.label} < ${inUnit(below, l)}${unitOf$2(l)}`;
	return above !== null ? `${l.column.label} > ${inUnit(above, l)}${unitOf$2(l)}` : `${l.column.label} < ${inUnit(below ?? 0, l)}${unitOf$2(l)}`;
}
/** `74`; `32 of 74 with time above 0.1 ms; 99.8 % of time`. */
function countText(s, shown) {
	if (!shown.filtered && shown.count === shown.of) return number(shown.of, 0);
	const state = tableOf(s.id);
	const ranges = Object.entries(state.ranges).filter(([name]) => layoutOf(s).has(name));
	const only = ranges.length === 1 && !Object.values(state.keep).some((v) => v.length) && !pickedOf(s) ? ranges[0] : null;
	const [l, range] = only ? [layoutOf(s).get(only[0]), only[1]] : [null, null];
	const words = l && range ? ` with ${low(l.column.label)} ${[range.above !== null && `above ${inUnit(range.above, l)}${unitOf$2(l)}`, range.below !== null && `below ${inUnit(range.below, l)}${unitOf$2(l)}`].filter(Boolean).join(" and ")}` : "";
	return `${number(shown.count, 0)} of ${number(shown.of, 0)}${words}${shareText(s, shown)}`;
}
/** The share of the shown rows in the total of the table, by its first column of bars. */
function shareText(s, shown) {
	const c = s.columns.find((c) => (c.show === "bar" || c.show === "stack") && typeof s.total?.[c.name] === "number");
	const total = c ? Number(s.total[c.name]) : 0;
	if (!c || !shown.filtered || s.tree || !(total > 0)) return "";
	const sum = shown.sums[c.name];
	if (sum === void 0) return "";
	return `; ${human((sum ?? 0) / total, "ratio")} of ${low(c.label)}`;
}
/** Chips for the columns a reader filters by, for bounds of numbers, and for rows selected in a chart. */
function Chips({ s, state }) {
	const groups = (s.filters ?? []).map((name) => s.columns.find((c) => c.name === name)).filter((c) => c !== void 0).map((c) => ({
		c,
		values: valueCounts(s, c.name)
	})).filter((g) => state.keep[g.c.name]?.length || g.values.length > 1 && g.values.length <= rowCount(s) * .6);
	const ranges = Object.entries(state.ranges).filter(([name]) => layoutOf(s).has(name));
	const picked = pickedOf(s);
	if (!groups.length && !ranges.length && !picked) return null;
	const keep = (column, value) => {
		const now = state.keep[column] ?? [];
		const next = now.includes(value) ? now.filter((v) => v !== value) : [...now, value];
		changeTable(s.id, { keep: {
			...state.keep,
			[column]: next
		} }, "quiet");
	};
	return /* @__PURE__ */ a("div", {
		class: "chips",
		role: "group",
		"aria-label": `Filter ${s.title}`,
		children: [
			groups.map(({ c, values }, i) => {
				const on = state.keep[c.name] ?? [];
				if (values.length <= CHIPS) return values.map(([value, count], k) => /* @__PURE__ */ a(Chip, {
					apart: i > 0 && k === 0,
					on: on.includes(value),
					count,
					tip: `${c.label}: ${value || "none"}`,
					mark: isUnmarked(s, c.name) ? void 0 : /* @__PURE__ */ a(ValueMark, { text: value }),
					onToggle: () => keep(c.name, value),
					children: valueText(value, c.label)
				}));
				return /* @__PURE__ */ a(Popover, {
					label: `Filter by ${c.label}`,
					class: `chip ${on.length ? "on" : ""}`,
					button: /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("span", { children: [
						c.label,
						": ",
						on.length === 0 ? "any" : on.length === 1 ? on[0] || "—" : `${on.length} chosen`
					] }), /* @__PURE__ */ a(Icon, {
						name: "down",
						size: 12
					})] }),
					children: () => /* @__PURE__ */ a(List, {
						label: c.label,
						value: "",
						marked: (v) => on.includes(v),
						onPick: (v) => keep(c.name, v),
						options: values.map(([value, count]) => ({
							value,
							text: valueText(value, c.label),
							note: String(count)
						})),
						foot: /* @__PURE__ */ a($, { children: [s.pages && values.length >= OFFERED && /* @__PURE__ */ a("div", {
							class: "none",
							children: [
								"The ",
								OFFERED,
								" most frequent; the filter finds the others."
							]
						}), on.length > 0 && /* @__PURE__ */ a("button", {
							type: "button",
							class: "option",
							onClick: () => changeTable(s.id, { keep: {
								...state.keep,
								[c.name]: []
							} }, "quiet"),
							children: ["Any ", c.label.toLowerCase()]
						})] })
					})
				});
			}),
			ranges.map(([name, range]) => /* @__PURE__ */ a(Chip, {
				on: true,
				tip: "Removes this filter",
				onToggle: () => setRange(s, name, {
					above: null,
					below: null
				}),
				children: rangeWords(range, layoutOf(s).get(name))
			})),
			picked && /* @__PURE__ */ a(Chip, {
				on: true,
				tip: sharesRows(s) ? "A row stands for several points and is counted whole. Click to show all rows again." : "Shows all rows again",
				count: picked.size,
				onToggle: () => clearPicked(s),
				children: sharesRows(s) ? `${s.columns[0]?.label ?? "Rows"} with points selected:` : "Selected in chart:"
			})
		]
	});
}
function setRange(s, column, range) {
	const { [column]: _, ...rest } = tableOf(s.id).ranges;
	changeTable(s.id, { ranges: range.above === null && range.below === null ? rest : {
		...rest,
		[column]: range
	} }, "push");
}
/** Below the heading of a column. */
function HeadMenu({ s, l, lead, close }) {
	const { column } = l;
	const order = (descending) => {
		changeTable(s.id, { sort: {
			column: column.name,
			descending
		} }, "quiet");
		close();
	};
	const hide = () => {
		changeTable(s.id, { columns: {
			...tableOf(s.id).columns,
			[column.name]: false
		} }, "quiet");
		close();
	};
	return /* @__PURE__ */ a("div", {
		class: "list head-menu",
		children: [
			/* @__PURE__ */ a("button", {
				type: "button",
				class: "option",
				onClick: () => order(l.numeric),
				children: l.numeric ? "Largest first" : "A to Z"
			}),
			/* @__PURE__ */ a("button", {
				type: "button",
				class: "option",
				onClick: () => order(!l.numeric),
				children: l.numeric ? "Smallest first" : "Z to A"
			}),
			l.numeric && /* @__PURE__ */ a(Bounds, {
				s,
				l,
				close
			}),
			!lead && /* @__PURE__ */ a("button", {
				type: "button",
				class: "option",
				onClick: hide,
				children: "Hide this column"
			})
		]
	});
}
/** Two fields in the column's unit; Enter applies both. */
function Bounds({ s, l, close }) {
	const range = tableOf(s.id).ranges[l.column.name] ?? {
		above: null,
		below: null
	};
	const text = (value) => value === null ? "" : inUnit(value, l);
	const [ends, setEnds] = d$2([text(range.above), text(range.below)]);
	const numbers = ends.map((t) => t.trim() ? readQuantity(t) : null);
	const bad = ends.map((t, i) => t.trim() !== "" && numbers[i] === null);
	const base = (value) => value === null ? null : Number((value * l.scale.factor).toPrecision(12));
	const apply = (event) => {
		event.preventDefault();
		if (bad.some(Boolean)) return;
		setRange(s, l.column.name, {
			above: base(numbers[0]),
			below: base(numbers[1])
		});
		close();
	};
	return /* @__PURE__ */ a("form", {
		class: "bounds",
		onSubmit: apply,
		children: [["greater than", "less than"].map((label, i) => /* @__PURE__ */ a("label", {
			class: "form-line",
			children: [
				/* @__PURE__ */ a("span", { children: label }),
				/* @__PURE__ */ a("input", {
					class: "typed bound",
					type: "text",
					inputMode: "decimal",
					size: 8,
					"aria-invalid": bad[i],
					value: ends[i],
					"data-first": i === 0 ? true : void 0,
					onInput: (e) => {
						const value = e.currentTarget.value;
						setEnds(([a, b]) => i === 0 ? [value, b] : [a, value]);
					}
				}),
				/* @__PURE__ */ a("span", {
					class: "quiet bound-unit",
					children: l.scale.name
				})
			]
		})), /* @__PURE__ */ a("button", {
			type: "submit",
			class: "button",
			disabled: bad.some(Boolean),
			children: "Filter"
		})]
	});
}
// src/sections/table/ranked.tsx
var NARROW_CARD = 5;
var LONGEST = 20;
var barOf = (s) => s.columns.find((c) => c.show === "bar");
/** Is this a list to read from the top: narrow, short, and of one bar per row? */
var isRanked = (s) => (s.span ?? 12) <= NARROW_CARD && !s.tree && !s.total && rowCount(s) <= LONGEST && s.columns.filter((c) => c.show === "bar").length === 1;
/** `ms, with running share`: the unit of the numbers, then the subtitle of the section. */
function rankedSubtitle(s) {
	const bar = barOf(s);
	return [bar && layoutOf(s).get(bar.name).scale.name, s.subtitle].filter(Boolean).join(", ");
}
function RankedRow({ s, index }) {
	const bar = barOf(s);
	const l = layoutOf(s).get(bar.name);
	const name = s.columns.find((c) => textual(c) && (c.rank ?? 1) < 3) ?? s.columns[0];
	const sizes = s.columns.find((c) => c.show === "shapes");
	const share = s.columns.find((c) => c.show === "share");
	const member = (c) => String(c.color_by && cell(s, c.color_by, index) || c.color || "bar-ink");
	const value = cell(s, bar.name, index);
	const part = share ? cell(s, share.name, index) : null;
	const size = sizes ? shapeText(String(cell(s, sizes.name, index) ?? "")) : "";
	const color = member(bar);
	const link = s.cell_links?.[name.name]?.[String(index)];
	const text = /* @__PURE__ */ a(Middle, {
		text: String(cell(s, name.name, index) ?? "—"),
		tip: wholeText(s, name, index)
	});
	return /* @__PURE__ */ a("div", {
		class: "ranked",
		children: [
			/* @__PURE__ */ a("span", {
				class: "ranked-name mono",
				children: [link ? /* @__PURE__ */ a(ViewLink, {
					view: linkView(link),
					class: "link",
					tip: link.label ? plain(link.label) : void 0,
					children: text
				}) : text, size && /* @__PURE__ */ a("span", {
					class: "quiet ranked-size ellipsis",
					"data-tip": size,
					children: size
				})]
			}),
			/* @__PURE__ */ a("span", {
				class: "ranked-value",
				"data-tip": bar.doc || void 0,
				children: /* @__PURE__ */ a(Marked, {
					mark: s.marks?.[bar.name]?.[String(index)],
					children: typeof value === "number" ? inColumn(value, l.scale) : "—"
				})
			}),
			share && /* @__PURE__ */ a("span", {
				class: "ranked-share",
				"data-tip": share.doc || void 0,
				children: typeof part === "number" ? `${inColumn(part, layoutOf(s).get(share.name).scale)}\u202f%` : "—"
			}),
			/* @__PURE__ */ a("span", {
				class: "ranked-bar",
				children: /* @__PURE__ */ a("span", {
					class: PALE.has(color) ? "pale" : "",
					style: {
						width: typeof value === "number" && value > 0 && l.full > 0 ? `max(1.5px, ${value / l.full * 100}%)` : "0",
						background: paint(color)
					}
				})
			})
		]
	});
}
// src/sections/table/resize.tsx
/** px that a column keeps. */
var LEAST = 48;
var MOST = 1600;
var KEY_STEP = 16;
/** px of a letter of a name, and around a value. */
var LETTER = 7.25;
var AROUND = 44;
/** Widths that the reader chose while the page is open, by table and column. */
var chosen$1 = y$1({});
/** The widths of a table's columns with those that the reader chose; the others stay as they are. */
function withChosen(id, columns, widths) {
	const own = chosen$1.value[id];
	return own ? columns.map((c, i) => own[c.column.name] ?? widths[i]) : [...widths];
}
var within = (width) => Math.round(Math.min(MOST, Math.max(LEAST, width)));
function choose(id, column, width) {
	const { [column]: _, ...rest } = chosen$1.peek()[id] ?? {};
	chosen$1.value = {
		...chosen$1.peek(),
		[id]: width === null ? rest : {
			...rest,
			[column]: within(width)
		}
	};
}
/** px that show the longest value of a column whole. */
function contentWidth(values, usual) {
	const longest = values.reduce((most, v) => typeof v === "string" && v.length > most ? v.length : most, 0);
	return within(Math.max(usual, longest * LETTER + AROUND));
}
function Edge({ s, column, width }) {
	const from = T$1(null);
	const name = column.column.name;
	const fit = () => choose(s.id, name, contentWidth(column.numeric ? [] : columnValues(s, name), column.width));
	return /* @__PURE__ */ a("span", {
		class: "edge",
		role: "separator",
		"aria-orientation": "vertical",
		tabIndex: 0,
		"aria-label": `Width of ${column.column.label}`,
		"aria-valuenow": Math.round(width),
		"aria-valuemin": LEAST,
		"aria-valuemax": MOST,
		"data-tip": "Drag, or ← and → keys: width. Double click or Enter: fit the content. Delete: as before.",
		onPointerDown: (e) => {
			from.current = {
				x: e.clientX,
				width
			};
			e.currentTarget.setPointerCapture(e.pointerId);
			e.preventDefault();
		},
		onPointerMove: (e) => {
			if (from.current) choose(s.id, name, from.current.width + e.clientX - from.current.x);
		},
		onPointerUp: () => {
			from.current = null;
		},
		onPointerCancel: () => {
			from.current = null;
		},
		onDblClick: fit,
		onKeyDown: (e) => {
			if (e.key === "ArrowLeft" || e.key === "ArrowRight") choose(s.id, name, width + (e.key === "ArrowLeft" ? -1 : 1) * KEY_STEP * (e.shiftKey ? 4 : 1));
			else if (e.key === "Enter") fit();
			else if (e.key === "Delete" || e.key === "Backspace") choose(s.id, name, null);
			else return;
			e.preventDefault();
			e.stopPropagation();
		}
	});
}
// src/sections/table/table.tsx
var ROW = 30;
var RANKED_ROW = 49;
var SCROLL_FROM = 60;
/** The filter text of a table: the page's `find` belongs to its main table. */
var findOf = (s, main) => main ? view.value.find : tableOf(s.id).find;
function setFind(s, main, text) {
	if (main) change({ find: text }, "replace");
	else changeTable(s.id, { find: text }, "replace");
}
/** Takes every filter of a table away. */
function clearFilters(s, main) {
	clearPicked(s);
	changeTable(s.id, {
		keep: {},
		ranges: {},
		find: ""
	}, "quiet");
	if (main) setFind(s, main, "");
}
/** The columns a table shows now, and the room it has, by section id: the column chooser and CSV ask for them. */
var rooms = y$1({});
var shownColumns = (s) => columnsFor(s, tableOf(s.id), rooms.value[s.id] ?? 1e3);
var shownOf = (s, main) => shownRows(s, tableOf(s.id), findOf(s, main), pickedOf(s));
function TableView({ s, report, main, shown, twins }) {
	const state = tableOf(s.id);
	const columns = shownColumns(s);
	const scroller = T$1(null);
	const [cursor, setCursor] = d$2(-1);
	const [copied, setCopied] = d$2(false);
	const chosenElsewhere = T$1(false);
	const tree = !!s.tree;
	const windowed = shown.rows.length > SCROLL_FROM;
	const ranked = isRanked(s);
	const rows = useRows(shown.rows.length, ranked ? RANKED_ROW : ROW, windowed, scroller);
	const sort = sortOf(s, state);
	const at = Math.min(cursor, shown.rows.length - 1);
	const selected = w$2(() => state.row ? placeOf$2(s, shown, state.row) : -1, [shown, state.row]);
	A$1(() => {
		if (!state.row || chosenElsewhere.current) {
			chosenElsewhere.current = false;
			return;
		}
		if (selected >= 0) rows.scrollTo(selected);
		else {
			const path = pathTo(s, shown, state.row);
			if (path.length) changeTable(s.id, { opened: withOpen(s, state, path, true) }, "quiet");
		}
	}, [
		state.row,
		selected >= 0,
		shown.order?.paths.has(state.row)
	]);
	const [from, to] = [rows.items[0]?.index ?? 0, rows.items.at(-1)?.index ?? 0];
	A$1(() => ensureRows(s, shown, from, to + 1), [
		shown.order,
		from,
		to
	]);
	F$1(() => {
		if (windowed && at >= 0) rows.scrollTo(at);
		else if (at >= 0) rows.scrollTo(at);
	}, [at]);
	F$1(() => {
		const el = scroller.current;
		const measure = () => {
			const width = el.clientWidth;
			if (width && rooms.peek()[s.id] !== width) rooms.value = {
				...rooms.peek(),
				[s.id]: width
			};
		};
		const sized = new ResizeObserver(measure);
		sized.observe(el);
		measure();
		return () => sized.disconnect();
	}, []);
	const select = (row) => {
		chosenElsewhere.current = true;
		selectRow([s, ...twins], row.key === state.row ? "" : row.key);
	};
	const toggle = (row, open = !row.open) => {
		if (!(s.pages && shown.filtered)) changeTable(s.id, { opened: withOpen(s, state, [row.id], open) }, "quiet");
	};
	const order = (column) => {
		const descending = sort?.column === column ? !sort.descending : layoutOf(s).get(column).numeric;
		const natural = s.sort && s.sort.column === column && (s.sort.descending ?? true) === descending;
		changeTable(s.id, { sort: natural ? null : {
			column,
			descending
		} }, "quiet");
	};
	const keys = (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey) return;
		const row = shown.rows[at];
		const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 600) / ROW) - 2);
		const move = {
			ArrowDown: at + 1,
			ArrowUp: at - 1,
			Home: 0,
			End: shown.rows.length - 1,
			PageDown: at + page,
			PageUp: at - page
		}[event.key];
		if (move !== void 0) setCursor(Math.max(0, Math.min(shown.rows.length - 1, move)));
		else if (event.key === "ArrowRight" && tree && row) {
			if (row.branch && !row.open) toggle(row, true);
			else if (row.branch) setCursor(at + 1);
			else return;
		} else if (event.key === "ArrowLeft" && tree && row) {
			if (row.open) toggle(row, false);
			else {
				let up = at - 1;
				while (up >= 0 && shown.rows[up].depth >= row.depth) up--;
				if (up < 0) return;
				setCursor(up);
			}
		} else if (event.key === "*" && tree) changeTable(s.id, { opened: row ? withOpen(s, state, below(s, shown, at), true) : {
			base: "a",
			ids: []
		} }, "quiet");
		else if (event.key === "Enter" && row) {
			const link = s.row_links?.[String(row.index)];
			if (link) go(linkView(link), "push");
			else select(row);
		} else if (event.key === " " && row) select(row);
		else if (event.key === "Escape" && (state.row || at >= 0)) {
			setCursor(-1);
			if (state.row) selectRow([s, ...twins], "");
		} else if (event.key === "c" && row) copyText(rowText(s, columns.map((c) => c.column), row.index), "the row").then((ok) => {
			setCopied(ok);
			window.setTimeout(() => setCopied(false), 1500);
		});
		else return;
		event.preventDefault();
		event.stopPropagation();
	};
	const { widths: usual, tall } = fit(columns, rooms.value[s.id] ?? 1e3);
	const widths = withChosen(s.id, columns, usual);
	const least = widths.reduce((sum, w) => sum + w, 0);
	const id = (index) => `${s.id}-row-${index}`;
	return /* @__PURE__ */ a($, { children: [
		/* @__PURE__ */ a("div", {
			class: `table-scroll ${windowed ? "windowed" : ""} ${shown.waiting ? "is-waiting" : ""}`,
			ref: scroller,
			"aria-busy": shown.waiting ? true : void 0,
			tabIndex: 0,
			role: "group",
			"aria-label": `${s.title}, rows`,
			"aria-activedescendant": at >= 0 ? id(at) : void 0,
			onKeyDown: keys,
			onFocus: (e) => {
				if (e.target === scroller.current && at < 0 && e.currentTarget.matches(":focus-visible")) setCursor(Math.max(0, selected));
			},
			children: [
				/* @__PURE__ */ a("table", {
					class: `table ${ranked ? "as-list" : ""} ${tall ? "tall" : ""}`,
					role: tree ? "treegrid" : void 0,
					"aria-rowcount": shown.rows.length + 1,
					style: ranked ? void 0 : { minWidth: `${Math.floor(least)}px` },
					children: [
						!ranked && /* @__PURE__ */ a("colgroup", { children: widths.map((w) => /* @__PURE__ */ a("col", { style: { width: `${Math.floor(w)}px` } })) }),
						/* @__PURE__ */ a("thead", {
							hidden: ranked,
							children: /* @__PURE__ */ a("tr", { children: columns.map((c, i) => /* @__PURE__ */ a("th", {
								scope: "col",
								class: `${c.numeric ? "right" : ""} ${sort?.column === c.column.name ? "sorted" : ""}`,
								"aria-sort": sort?.column === c.column.name ? sort.descending ? "descending" : "ascending" : "none",
								children: [
									/* @__PURE__ */ a("button", {
										type: "button",
										onClick: () => order(c.column.name),
										"data-tip": c.column.doc || void 0,
										children: [c.heading, sort?.column === c.column.name && /* @__PURE__ */ a("span", {
											class: "arrow",
											"aria-hidden": "true",
											children: sort.descending ? "↓" : "↑"
										})]
									}),
									/* @__PURE__ */ a(Popover, {
										class: "head-caret",
										label: `${c.column.label}: order, filter, hide`,
										fixed: true,
										button: /* @__PURE__ */ a(Icon, {
											name: "down",
											size: 12
										}),
										children: (close) => /* @__PURE__ */ a(HeadMenu, {
											s,
											l: c,
											lead: i === 0,
											close
										})
									}),
									/* @__PURE__ */ a(Edge, {
										s,
										column: c,
										width: widths[i]
									})
								]
							}, c.column.name)) })
						}),
						/* @__PURE__ */ a("tbody", { children: [
							s.total && !shown.filtered && /* @__PURE__ */ a("tr", {
								class: "total",
								children: columns.map((c) => /* @__PURE__ */ a("td", {
									class: cellClass(c),
									children: /* @__PURE__ */ a(TotalCell, {
										s,
										layoutOf: c
									})
								}))
							}),
							shown.filtered && shown.count > 0 && Object.keys(shown.sums).length > 0 && /* @__PURE__ */ a(ShownTotal, {
								s,
								columns,
								shown
							}),
							rows.before > 0 && /* @__PURE__ */ a("tr", {
								"aria-hidden": "true",
								class: "gap",
								children: /* @__PURE__ */ a("td", {
									colSpan: columns.length,
									style: { height: `${rows.before}px` }
								})
							}),
							rows.items.map(({ index }) => {
								const row = shown.rows[index];
								if (!row) return shown.order ? /* @__PURE__ */ a(Absent, {
									s,
									order: shown.order,
									index,
									id: id(index),
									cursor: index === at,
									span: columns.length
								}, `absent-${index}`) : null;
								return /* @__PURE__ */ a("tr", {
									id: id(index),
									"data-at": index,
									"data-key": row.key,
									"aria-rowindex": index + 2,
									class: `${row.key === state.row ? "selected" : ""} ${index === at ? "cursor" : ""} ${row.last ? "outside" : ""}`,
									"aria-selected": row.key === state.row,
									"aria-level": tree ? row.depth + 1 : void 0,
									"aria-expanded": tree && row.branch ? row.open : void 0,
									onClick: () => {
										if (!window.getSelection()?.toString()) {
											setCursor(index);
											select(row);
										}
									},
									onDblClick: () => {
										const link = s.row_links?.[String(row.index)];
										if (link) go(linkView(link), "push");
									},
									children: ranked ? /* @__PURE__ */ a("td", { children: /* @__PURE__ */ a(RankedRow, {
										s,
										index: row.index
									}) }) : columns.map((c) => /* @__PURE__ */ a("td", {
										class: cellClass(c),
										children: /* @__PURE__ */ a(Cell, {
											s,
											layoutOf: c,
											row,
											onToggle: toggle
										})
									}))
								}, row.id);
							}),
							rows.after > 0 && /* @__PURE__ */ a("tr", {
								"aria-hidden": "true",
								class: "gap",
								children: /* @__PURE__ */ a("td", {
									colSpan: columns.length,
									style: { height: `${rows.after}px` }
								})
							})
						] })
					]
				}),
				shown.waiting?.error && /* @__PURE__ */ a("p", {
					class: "section-empty",
					role: "alert",
					children: /* @__PURE__ */ a(NotCome, {
						s,
						order: shown.waiting,
						what: "These rows"
					})
				}),
				!shown.rows.length && !shown.waiting && /* @__PURE__ */ a("p", {
					class: "section-empty",
					children: shown.filtered ? /* @__PURE__ */ a($, { children: ["Nothing passes the filters. ", /* @__PURE__ */ a("button", {
						type: "button",
						class: "link",
						onClick: () => {
							clearFilters(s, main);
						},
						children: "Clear them"
					})] }) : /* @__PURE__ */ a(Text, { text: s.empty || "No rows." })
				})
			]
		}),
		!ranked && state.row && /* @__PURE__ */ a(RowCard, {
			s,
			report,
			shown,
			selected: state.row,
			onClose: () => selectRow([s, ...twins], "")
		}),
		!ranked && (s.footer || tree || s.row_links || shown.rows.length > 8) && /* @__PURE__ */ a("div", {
			class: "table-foot",
			children: [
				/* @__PURE__ */ a("span", {
					class: "keys",
					children: copied ? /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a(Icon, {
						name: "check",
						size: 12
					}), " Copied the row"] }) : tree ? `→ open, ← close, * open ${s.pages ? "a level more" : "all below"}, space selects, C copies the row` : `↑ ↓ move, ${s.row_links ? "Enter opens, space selects" : "Enter selects"}, C copies the row`
				}),
				s.footer && /* @__PURE__ */ a("span", {
					class: "definition",
					children: /* @__PURE__ */ a(Text, { text: s.footer })
				}),
				!!s.truncated && /* @__PURE__ */ a("span", {
					class: "definition",
					children: [number(s.truncated, 0), " more rows were left out."]
				})
			]
		})
	] });
}
/** The row of sums over the shown rows of a filtered table; its words take the room up to the first sum. */
function ShownTotal({ s, columns, shown }) {
	const first = columns.findIndex((c) => c.column.name in shown.sums);
	if (first < 0) return null;
	return /* @__PURE__ */ a("tr", {
		class: "total shown-total",
		children: [first > 0 && /* @__PURE__ */ a("td", {
			colSpan: first,
			children: /* @__PURE__ */ a("span", {
				class: "ellipsis",
				children: `shown: ${number(shown.count, 0)} of ${number(shown.of, 0)}`
			})
		}), columns.slice(first).map((c) => /* @__PURE__ */ a("td", {
			class: cellClass(c),
			children: /* @__PURE__ */ a(ShownTotalCell, {
				s,
				layoutOf: c,
				shown
			})
		}))]
	});
}
/** A row that has not come: it is being requested, or that failed. */
function Absent({ s, order, index, id, cursor, span }) {
	const failed = [...order.failed.keys()].some((first) => index >= first && Math.floor(index / 100) === Math.floor(first / 100));
	return /* @__PURE__ */ a("tr", {
		id,
		"data-at": index,
		"aria-rowindex": index + 2,
		"aria-busy": !failed,
		class: `absent ${cursor ? "cursor" : ""}`,
		children: /* @__PURE__ */ a("td", {
			colSpan: span,
			children: failed ? /* @__PURE__ */ a(NotCome, {
				s,
				order,
				what: "This row"
			}) : /* @__PURE__ */ a("span", {
				class: "quiet",
				"aria-label": "Loading",
				children: "…"
			})
		})
	});
}
/** Why rows did not come, and what can be done. */
function NotCome({ s, order, what }) {
	const error = order.error ?? [...order.failed.values()][0];
	if (error?.body.code === "changed") return /* @__PURE__ */ a($, { children: ["The recording has changed. ", /* @__PURE__ */ a("button", {
		type: "button",
		class: "link",
		onClick: readAgain,
		children: "Read it again"
	})] });
	return /* @__PURE__ */ a($, { children: [
		what,
		" could not be loaded: ",
		error?.message ?? "",
		" ",
		/* @__PURE__ */ a("button", {
			type: "button",
			class: "link",
			onClick: () => pagedOf(s)?.retry(order),
			children: "Try again"
		})
	] });
}
/** Where all shown rows and columns of a table in pages can be saved from; null for one that is whole. */
var csvAddress = (s, main) => pagedOf(s)?.csvAddress(choiceNow(s, tableOf(s.id), findOf(s, main), null), shownColumns(s).map((c) => c.column.name)) ?? null;
var cellClass = (c) => `${c.numeric ? "right" : ""} ${hasBar(c.column) ? "barred" : ""}`;
// src/sections/figure/drag.ts
var chosen = y$1({});
var dragOf = (id) => chosen.value[id] ?? "select";
var setDrag = (id, drag) => {
	chosen.value = {
		...chosen.value,
		[id]: drag
	};
};
// src/sections/figure/pinned.tsx
var FIRST$1 = 8;
var GAP = 12;
var WORDS$1 = 18;
/** Columns of the card: by rank, known values first within it; the name, the sizes and the id of the row are shown elsewhere. */
function cardColumns(table, index, except) {
	const rest = table.columns.filter((c) => !except.includes(c) && c.name !== table.key && c.name !== table.tree?.id && c.name !== table.tree?.parent);
	const place = (c) => (c.rank ?? 1) + (cell(table, c.name, index) === null ? 10 : 0);
	return rest.map((c, i) => [
		c,
		place(c),
		i
	]).sort((a, b) => a[1] - b[1] || a[2] - b[2]).map(([c]) => c);
}
function linksOf(table, index) {
	const all = [
		timelineLink(table, index),
		table.row_links?.[String(index)],
		...Object.values(table.cell_links ?? {}).map((links) => links[String(index)])
	];
	const known = /* @__PURE__ */ new Set();
	return all.filter((link) => {
		if (!link) return false;
		const text = JSON.stringify([link.analysis, link.query]);
		return !known.has(text) && !!known.add(text);
	});
}
function Pinned({ table, selected, spot, room, onClose }) {
	const card = T$1(null);
	const [more, setMore] = d$2(false);
	F$1(() => {
		const el = card.current;
		if (!el) return;
		const { offsetWidth: w, offsetHeight: h } = el;
		const at = place(spot, room, w, h);
		el.style.left = `${at.left}px`;
		el.style.top = `${at.top}px`;
	}, [
		spot,
		room.width,
		room.height,
		selected,
		more,
		table
	]);
	pagedOf(table)?.news.value;
	const index = table.data[table.key ?? ""]?.findIndex((k) => String(k) === selected) ?? -1;
	if (index < 0) return null;
	const name = table.columns.find((c) => textual(c) && (c.rank ?? 1) < 3) ?? table.columns[0];
	const sizes = table.columns.find((c) => c.show === "shapes");
	const columns = cardColumns(table, index, [name, sizes]);
	const shown = more ? columns : columns.filter((c) => cell(table, c.name, index) !== null && cell(table, c.name, index) !== "").slice(0, FIRST$1);
	const member = String(name?.color_by && cell(table, name.color_by, index) || "");
	const links = linksOf(table, index);
	const text = String(name ? cell(table, name.name, index) : selected);
	const full = name ? wholeText(table, name, index) : text;
	return /* @__PURE__ */ a("div", {
		class: "pinned",
		ref: card,
		role: "group",
		"aria-label": `Selected: ${text}`,
		style: { maxHeight: `${Math.max(140, room.height - 8)}px` },
		children: [
			/* @__PURE__ */ a("div", {
				class: "pinned-head",
				children: [
					markOf$1(member) && /* @__PURE__ */ a(Mark, {
						shape: markOf$1(member),
						color: paint(member)
					}),
					/* @__PURE__ */ a("span", {
						class: "mono",
						children: /* @__PURE__ */ a(Middle, {
							text,
							tip: full
						})
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: "ghost",
						"aria-label": "Clear the selection",
						"data-tip": "Esc",
						onClick: onClose,
						children: /* @__PURE__ */ a(Icon, {
							name: "close",
							size: 12
						})
					})
				]
			}),
			full !== text && /* @__PURE__ */ a("p", {
				class: "pinned-full mono",
				children: full
			}),
			sizes && cell(table, sizes.name, index) !== null && /* @__PURE__ */ a("div", {
				class: "pinned-sizes mono",
				children: /* @__PURE__ */ a(Middle, { text: shapeText(String(cell(table, sizes.name, index))) })
			}),
			/* @__PURE__ */ a("dl", { children: shown.map((c) => /* @__PURE__ */ a("div", { children: [/* @__PURE__ */ a("dt", { children: c.label }), /* @__PURE__ */ a("dd", {
				class: c.show === "code" ? "mono" : "",
				children: /* @__PURE__ */ a(Value, {
					value: cell(table, c.name, index),
					unit: unitOf$1(c),
					mark: table.marks?.[c.name]?.[String(index)],
					doc: c.doc
				})
			})] })) }),
			/* @__PURE__ */ a("div", {
				class: "pinned-foot",
				children: [links.map((link) => /* @__PURE__ */ a(ReportLink, { link })), columns.length > shown.length || more ? /* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					"aria-expanded": more,
					onClick: () => setMore(!more),
					children: more ? "Less" : `${columns.length - shown.length} more`
				}) : null]
			})
		]
	});
}
/** The unit to show: not again where the label is the unit. */
function unitOf$1(c) {
	const unit = c.unit || (c.show === "share" || c.show === "efficiency" ? "ratio" : "");
	return unit === c.label && scaleOf(1e9, unit).name === unit ? "" : unit;
}
/** Below the point where there is room, else above it and its words, else at its side; inside the figure in any case. Without a point, lower right. */
function place(spot, room, w, h) {
	const clamp = (v, most) => Math.max(4, Math.min(v, most - 4));
	if (!spot) return {
		left: clamp(room.width - w - 10, room.width - w),
		top: clamp(room.height - h - 52, room.height - h)
	};
	const aside = spot.radius + GAP;
	const left = clamp(spot.x + GAP, room.width - w);
	if (spot.y + aside + h <= room.height - 4) return {
		left,
		top: spot.y + aside
	};
	if (spot.y - aside - WORDS$1 - h >= 4) return {
		left,
		top: spot.y - aside - WORDS$1 - h
	};
	return {
		left: clamp(spot.x + aside + w <= room.width - 4 ? spot.x + aside : spot.x - aside - w, room.width - w),
		top: clamp(room.height - h - 4, room.height - h)
	};
}
// src/sections/figure/scale.tsx
/** How the boxes are colored, kept in the figure's text as `c:own`. */
var paintOf = (text) => text.split(";").includes("c:own") ? "own" : "given";
var withPaint = (text, how) => [...text.split(";").filter((p) => p && !p.startsWith("c:")), ...how === "own" ? ["c:own"] : []].join(";");
function BoxScale({ s, partial }) {
	const scale = boxScale(s.figure.data ?? []);
	if (!scale?.efficiency) return null;
	const text = view.value.figures[s.id] ?? "";
	const now = paintOf(text);
	return /* @__PURE__ */ a("div", {
		class: "scale",
		children: [now === "given" ? /* @__PURE__ */ a("span", {
			class: "scale-key",
			role: "img",
			"aria-label": "Color: efficiency from 0 to 100 % of the limit",
			children: [
				"0 %",
				/* @__PURE__ */ a("span", {
					class: "ramp",
					style: { background: `linear-gradient(to right, ${SCALE.map(paint).join(", ")})` }
				}),
				"100 % of its limit",
				scale.unknown && /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("span", { class: "swatch idle" }), "no cost model"] }),
				partial && /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("span", {
					class: "swatch part",
					"data-tip": "The color is that of the modeled part"
				}), "partly modeled"] })
			]
		}) : /* @__PURE__ */ a("span", {
			class: "scale-key",
			role: "img",
			"aria-label": "Color: self part, from none to the largest",
			children: [
				"all in the boxes below",
				/* @__PURE__ */ a("span", {
					class: "ramp",
					style: { background: "linear-gradient(to right, var(--sunken), var(--compute))" }
				}),
				"largest self part"
			]
		}), scale.self && /* @__PURE__ */ a(Switch, {
			label: "Color",
			value: now,
			onPick: (how) => changeFigure(s.id, withPaint(text, how), "quiet"),
			choices: [{
				value: "given",
				text: "Efficiency"
			}, {
				value: "own",
				text: "Self"
			}]
		})]
	});
}
// src/sections/figure/window.ts
var UNITS = [
	[1e9, "s"],
	[1e6, "ms"],
	[1e3, "us"],
	[1, "ns"]
];
/** A window is written to this part of its length: finer than a pixel. */
var PARTS = 1e5;
function unitOf(ns) {
	return UNITS.find(([size]) => Math.abs(ns) >= size) ?? [1, "ns"];
}
/** `12.345ms`: in steps of about `fine` ns, whole nanoseconds at the finest. */
function timeText(ns, unit, fine) {
	const [size, name] = unit;
	const decimals = Math.max(0, Math.min(Math.round(Math.log10(size)), Math.ceil(Math.log10(size / Math.max(fine, 1)))));
	return `${Number((ns / size).toFixed(decimals))}${name}`;
}
/** The window between two places of the axis; null where it has no length. */
function windowText(ends, zoom) {
	const [a, b] = ends.map((x) => Math.round(x * (zoom.scale ?? 1))).sort((x, y) => x - y);
	if (!Number.isFinite(a) || !Number.isFinite(b) || b - a < 1) return null;
	const unit = unitOf(Math.max(Math.abs(a), Math.abs(b)));
	const fine = (b - a) / PARTS;
	return `${timeText(a, unit, fine)}-${timeText(b, unit, fine)}`;
}
/** A moment of the axis; `width` is the length of the axis, so that the text is as fine as a pixel is. */
function momentText(x, width, zoom) {
	const scale = zoom.scale ?? 1;
	const ns = Math.round(x * scale);
	return Number.isFinite(ns) ? timeText(ns, unitOf(ns), Math.abs(width) * scale / PARTS) : null;
}
/** The x range of a finished drag; null for other changes of the layout. */
function draggedRange(changes) {
	const ends = changes["xaxis.range"] ?? [changes["xaxis.range[0]"], changes["xaxis.range[1]"]];
	if (!Array.isArray(ends) || ends.length !== 2 || !ends.every((e) => typeof e === "number" && Number.isFinite(e))) return null;
	return ends;
}
/** The first stretch whose row is selected in its table. */
function coveredBy(stretches, rowOf) {
	for (const [table, rows] of Object.entries(stretches ?? {})) {
		const row = rowOf(table);
		if (row && Object.hasOwn(rows, row)) return rows[row];
	}
	return null;
}
/** The subtitle of a figure, and what dragging and clicking do where they change the page. */
function figureSubtitle(s) {
	const acts = s.zoom ? `drag to select a window${s.zoom.at ? ", click to select a moment" : ""}: the whole page follows` : "";
	return [s.subtitle, acts].filter(Boolean).join("; ");
}
// src/sections/figure/figure.tsx
var NONE = /* @__PURE__ */ new Set();
/** Whether the labels of a figure stand in the order of their importance, so that the last ones give way in a narrow window. */
var byImportance = (layout) => layout.meta?.labels === "by importance";
/** Asks for other values of the page's query; "" leaves a field at its default. */
function ask(fields) {
	change({ query: Object.fromEntries(Object.entries({
		...view.peek().query,
		...fields
	}).filter(([, value]) => value !== "")) }, "push");
}
/** The parts of a figure's text that hide something of it: ranges of axes, the level of boxes. */
var ZOOMED = /(^|;)([xy]\d*|l):/;
/** Narrower than this there is no room for a card at a point: the row is in the table. */
var CARD_FROM = 560;
function Figure({ s, table, twins, main }) {
	const container = T$1(null);
	const plot = T$1(null);
	const bound = T$1(null);
	const [near, setNear] = d$2(false);
	const [[width, height], setSize] = d$2([0, 0]);
	const [failed, setFailed] = d$2("");
	const [drawn, setDrawn] = d$2(false);
	const [hidden, setHidden] = d$2([]);
	const isDark = dark.value;
	const selected = table ? tableOf(table.id).row : "";
	const zoom = view.value.figures[s.id] ?? "";
	const keep = table && !table.tree ? passingKeys(table, tableOf(table.id), findOf(table, main)) : null;
	const inside = insideOf(s);
	const drag = brushable(s) ? dragOf(s.id) : "zoom";
	const [spot, setSpot] = d$2(null);
	const [shows, setShows] = d$2(false);
	const known = T$1({
		s,
		table,
		twins
	});
	known.current = {
		s,
		table,
		twins
	};
	const covered = coveredBy(s.stretches, (id) => tableOf(id).row);
	const keepKey = keep && ["kept", ...keep].join("");
	const legend = legendOf(s);
	A$1(() => {
		const el = container.current;
		const seen = new IntersectionObserver(([entry]) => {
			if (entry?.isIntersecting) setNear(true);
		}, { rootMargin: "400px" });
		const sized = new ResizeObserver(() => setSize(([w, h]) => w === el.clientWidth && h === el.clientHeight ? [w, h] : [el.clientWidth, el.clientHeight]));
		seen.observe(el);
		sized.observe(el);
		return () => {
			seen.disconnect();
			sized.disconnect();
			if (plot.current) purge(plot.current);
		};
	}, []);
	A$1(() => {
		const el = plot.current;
		if (!near || !el || width < 40) return;
		let live = true;
		const timer = window.setTimeout(() => {
			const { data, layout, point, shows } = ready(s, {
				themed,
				token,
				width,
				height,
				selected,
				keep,
				zoom,
				areas: areasOf(zoom),
				inside,
				drag,
				paint: paintOf(zoom),
				partial: table ? partialKeys(table) : NONE,
				covered
			});
			const shown = hidden.length ? data.filter((t) => !hidden.includes(String(t["name"]))) : data;
			draw(el, shown, layout, s.zoom ? false : "reset").then((el) => {
				if (!live) return;
				setShows(shows);
				if (byImportance(layout)) hideCollisions(el);
				listen(el, point && placeOf$3(el, point.axes, point.x, point.y), point?.radius ?? 0);
			}, (error) => {
				if (live) setFailed(error.message);
			});
		}, 0);
		const listen = (drawn, at, radius) => {
			setDrawn(true);
			setSpot(at && {
				...at,
				radius
			});
			if (bound.current === drawn.on) return;
			bound.current = drawn.on;
			drawn.on("plotly_click", (event) => {
				const { zoom, asks } = known.current.s;
				const row = asks?.[String(event.points[0]?.y)];
				if (row) {
					ask(row);
					return;
				}
				if (zoom) {
					const place = zoom.at ? clickedAt(drawn, event) : null;
					const text = place && momentText(place.x, place.width, zoom);
					if (zoom.at && text) ask({ [zoom.at]: text });
					return;
				}
				const key = pointKey(event.points[0]?.customdata);
				const { table, twins } = known.current;
				if (key !== null && table) selectRow([table, ...twins], tableOf(table.id).row === key ? "" : key);
			});
			drawn.on("plotly_hover", () => keepOff(drawn, container.current?.querySelector(".pinned")));
			drawn.on("plotly_selected", (event) => {
				const areas = areasOfRange(event?.range);
				if (areas.length) changeFigure(s.id, withAreas(view.peek().figures[s.id] ?? "", areas), "push");
			});
			drawn.on("plotly_deselect", () => changeFigure(s.id, withAreas(view.peek().figures[s.id] ?? "", []), "quiet"));
			drawn.on("plotly_relayout", (changes) => {
				const zoom = known.current.s.zoom;
				if (zoom) {
					const range = draggedRange(changes);
					const text = range && windowText(range, zoom);
					if (text) ask({
						[zoom.window]: text,
						...zoom.at ? { [zoom.at]: "" } : {}
					});
					return;
				}
				const before = view.peek().figures[s.id] ?? "";
				const after = zoomText(changes, before);
				if (after !== before) changeFigure(s.id, after);
			});
			for (const name of [
				"icicle",
				"treemap",
				"sunburst"
			]) drawn.on(`plotly_${name}click`, (event) => {
				changeFigure(s.id, zoomText({ level: event.nextLevel ?? "" }, view.peek().figures[s.id] ?? ""));
			});
			resize(el);
		};
		return () => {
			live = false;
			window.clearTimeout(timer);
		};
	}, [
		s,
		near,
		width,
		height,
		isDark,
		selected,
		keepKey,
		zoom,
		hidden,
		drag,
		covered
	]);
	A$1(() => {
		if (plot.current) keepOff(plot.current, container.current?.querySelector(".pinned"));
	}, [spot]);
	return /* @__PURE__ */ a($, { children: [
		legend.length > 0 && /* @__PURE__ */ a("div", {
			class: "legend row",
			role: "group",
			"aria-label": "Series",
			children: legend.map((item) => /* @__PURE__ */ a("button", {
				type: "button",
				class: `legend-item series ${hidden.includes(item.name) ? "off" : ""}`,
				"aria-pressed": !hidden.includes(item.name),
				onClick: () => setHidden(hidden.includes(item.name) ? hidden.filter((n) => n !== item.name) : [...hidden, item.name]),
				children: [item.symbol ? /* @__PURE__ */ a(Mark, {
					shape: item.symbol,
					color: themed(item.color)
				}) : /* @__PURE__ */ a("span", {
					class: `swatch ${item.hatched ? "idle" : ""}`,
					style: item.hatched ? void 0 : {
						background: themed(item.color),
						opacity: item.opacity
					}
				}), item.name]
			}))
		}),
		/* @__PURE__ */ a(BoxScale, {
			s,
			partial: !!table && partialKeys(table).size > 0
		}),
		/* @__PURE__ */ a("div", {
			class: `figure ${drawn || failed ? "" : "undrawn"}`,
			ref: container,
			style: { minHeight: `${s.height ?? 320}px` },
			children: [
				failed ? /* @__PURE__ */ a("p", {
					class: "section-empty",
					children: failed
				}) : /* @__PURE__ */ a("div", {
					ref: plot,
					class: "plot",
					"data-figure": s.id,
					role: "img",
					"aria-label": s.summary || s.title
				}),
				table && selected && shows && drawn && width >= CARD_FROM && (spot || !hasChart(table)) && /* @__PURE__ */ a(Pinned, {
					table,
					selected,
					spot,
					room: {
						width,
						height
					},
					onClose: () => selectRow([table, ...twins], "")
				}, selected),
				ZOOMED.test(zoom) && /* @__PURE__ */ a("button", {
					type: "button",
					class: "figure-reset text-button",
					onClick: () => changeFigure(s.id, zoom.split(";").filter((p) => !ZOOMED.test(p)).join(";")),
					children: "Whole figure"
				})
			]
		})
	] });
}
/** The figure as a picture file, in the theme it is seen in. */
async function saveFigure(s, format, title) {
	const width = 1100;
	const { data, layout } = ready(s, {
		themed,
		token,
		width,
		height: 0,
		selected: "",
		keep: null,
		zoom: view.peek().figures[s.id] ?? "",
		areas: [],
		inside: null,
		drag: "zoom",
		paint: paintOf(view.peek().figures[s.id] ?? ""),
		partial: NONE
	});
	const url = await picture(data, {
		...layout,
		autosize: false
	}, format, token("surface"), width, s.height ?? 320);
	const a = document.createElement("a");
	a.href = url;
	a.download = `${title.replace(/[^\w.-]+/g, "_")}.${format}`;
	a.click();
}
// src/sections/figure/tools.tsx
function FigureTools({ s }) {
	const jump = () => {
		const card = document.getElementById(`s-${s.table}`);
		card?.scrollIntoView({
			block: "start",
			behavior: "smooth"
		});
		card?.querySelector(".table-scroll")?.focus({ preventScroll: true });
	};
	return /* @__PURE__ */ a($, { children: [
		brushable(s) && /* @__PURE__ */ a(Popover, {
			label: `Select an area of ${s.title}`,
			tip: "Drag in the chart, or type an area in numbers",
			class: "text-button",
			align: "right",
			wide: true,
			button: /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a(Icon, {
				name: "area",
				size: 14
			}), /* @__PURE__ */ a("span", {
				class: "word",
				children: "Select"
			})] }),
			children: (close) => /* @__PURE__ */ a(AreaForm, {
				s,
				close
			})
		}),
		s.table && /* @__PURE__ */ a("button", {
			type: "button",
			class: "text-button accent",
			"data-tip": "The same numbers as a table",
			onClick: jump,
			children: "Table"
		}),
		/* @__PURE__ */ a(Popover, {
			label: `Save ${s.title} as a picture`,
			class: "text-button",
			align: "right",
			button: /* @__PURE__ */ a(Icon, {
				name: "image",
				size: 14
			}),
			children: (close) => /* @__PURE__ */ a("div", {
				class: "list",
				children: ["png", "svg"].map((format) => /* @__PURE__ */ a("button", {
					type: "button",
					class: "option",
					onClick: () => {
						saveFigure(s, format, s.title);
						close();
					},
					children: format.toUpperCase()
				}))
			})
		})
	] });
}
/** The title of an axis, else its letter. */
function axisName(s, letter, axes) {
	const axis = s.figure.layout?.[`${letter}axis${axes}`] ?? {};
	return plain((typeof axis.title === "string" ? axis.title : axis.title?.text) ?? "") || (letter === "x" ? "across" : "up");
}
/** A bound as a person would type it: `1 T`, `0.25`. */
function shown(value) {
	if (typeof value !== "number") return "";
	const { factor, name } = scaleOf(value, "FLOP");
	return `${Number((value / factor).toPrecision(4))} ${name.replace("FLOP", "")}`.trim();
}
/** A form for an area, as dragging a box gives: an empty field is no bound. */
function AreaForm({ s, close }) {
	const text = view.value.figures[s.id] ?? "";
	const now = areasOf(text);
	const [axes, setAxes] = d$2(now[0]?.axes ?? pairsOf(s)[0] ?? "");
	const area = now.find((a) => a.axes === axes);
	const [ends, setEnds] = d$2([
		shown(area?.x[0]),
		shown(area?.x[1]),
		shown(area?.y[0]),
		shown(area?.y[1])
	]);
	const numbers = ends.map((t) => t.trim() ? readQuantity(t) : null);
	const bad = ends.map((t, i) => t.trim() !== "" && numbers[i] === null);
	const apply = () => {
		if (bad.some(Boolean)) return;
		const next = numbers.every((n) => n === null) ? [] : [{
			axes,
			x: [numbers[0], numbers[1]],
			y: [numbers[2], numbers[3]]
		}];
		changeFigure(s.id, withAreas(text, next), "push");
		close();
	};
	const field = (i, label) => /* @__PURE__ */ a("input", {
		class: "typed bound",
		type: "text",
		size: 8,
		"aria-label": label,
		"aria-invalid": bad[i],
		placeholder: "any",
		value: ends[i],
		"data-first": i === 0 ? true : void 0,
		onInput: (e) => {
			const value = e.currentTarget.value;
			setEnds((was) => was.map((t, k) => k === i ? value : t));
		},
		onKeyDown: (e) => {
			if (e.key === "Enter") apply();
		}
	});
	return /* @__PURE__ */ a("div", {
		class: "form",
		children: [
			/* @__PURE__ */ a("div", {
				class: "form-row",
				children: [/* @__PURE__ */ a("span", {
					class: "field-label",
					children: "Dragging"
				}), /* @__PURE__ */ a(Switch, {
					label: "Dragging",
					value: dragOf(s.id),
					onPick: (v) => setDrag(s.id, v),
					choices: [{
						value: "select",
						text: "selects rows"
					}, {
						value: "zoom",
						text: "zooms"
					}]
				})]
			}),
			pairsOf(s).length > 1 && /* @__PURE__ */ a("div", {
				class: "form-row",
				children: [/* @__PURE__ */ a("span", {
					class: "field-label",
					children: "Area of"
				}), /* @__PURE__ */ a(Switch, {
					label: "Area of",
					value: axes,
					onPick: setAxes,
					choices: pairsOf(s).map((a) => ({
						value: a,
						text: a === "" ? "the chart" : "the strip"
					}))
				})]
			}),
			/* @__PURE__ */ a("div", {
				class: "form-line above",
				children: [
					/* @__PURE__ */ a("span", { children: axisName(s, "x", axes) }),
					field(0, "from, across"),
					/* @__PURE__ */ a("span", {
						class: "quiet",
						children: "to"
					}),
					field(1, "to, across")
				]
			}),
			axes === "" && /* @__PURE__ */ a("div", {
				class: "form-line above",
				children: [
					/* @__PURE__ */ a("span", { children: axisName(s, "y", axes) }),
					field(2, "from, up"),
					/* @__PURE__ */ a("span", {
						class: "quiet",
						children: "to"
					}),
					field(3, "to, up")
				]
			}),
			/* @__PURE__ */ a("p", {
				class: "form-note",
				children: "Numbers in base units; k, M, G, T and P are understood."
			}),
			/* @__PURE__ */ a("div", {
				class: "form-row end",
				children: [now.length > 0 && /* @__PURE__ */ a("button", {
					type: "button",
					class: "button",
					onClick: () => {
						changeFigure(s.id, withAreas(text, []), "quiet");
						close();
					},
					children: "Clear"
				}), /* @__PURE__ */ a("button", {
					type: "button",
					class: "button primary",
					disabled: bad.some(Boolean),
					onClick: apply,
					children: "Select"
				})]
			})
		]
	});
}
// src/sections/table/tools.tsx
/** How long after the last key a text is looked for: large tables are not searched for every letter. */
var WAIT_MS = 150;
function FindField({ value, onInput, label }) {
	const [text, setText] = d$2(value);
	const sent = T$1(value);
	const timer = T$1(0);
	A$1(() => () => window.clearTimeout(timer.current), []);
	A$1(() => {
		if (value === sent.current) return;
		window.clearTimeout(timer.current);
		sent.current = value;
		setText(value);
	}, [value]);
	const send = (now) => {
		window.clearTimeout(timer.current);
		if (now === sent.current) return;
		sent.current = now;
		onInput(now);
	};
	const type = (now, wait) => {
		setText(now);
		window.clearTimeout(timer.current);
		if (wait) timer.current = window.setTimeout(() => send(now), wait);
		else send(now);
	};
	const key = (event) => {
		if (event.key === "Enter") send(text);
		if (event.key !== "Escape") return;
		event.stopPropagation();
		if (text) type("", 0);
		else event.currentTarget.blur();
	};
	return /* @__PURE__ */ a("label", {
		class: "search find",
		children: [
			/* @__PURE__ */ a(Icon, {
				name: "search",
				size: 14
			}),
			/* @__PURE__ */ a("input", {
				type: "search",
				class: "find-input",
				placeholder: "Filter",
				"aria-label": label,
				value: text,
				onInput: (e) => type(e.currentTarget.value, WAIT_MS),
				onKeyDown: key,
				onBlur: () => send(text)
			}),
			!text && /* @__PURE__ */ a("kbd", { children: "/" })
		]
	});
}
function ColumnChooser({ s, state }) {
	const shown = new Set(shownColumns(s).map((l) => l.column.name));
	const lead = shownColumns(s)[0]?.column.name;
	return /* @__PURE__ */ a(Popover, {
		label: "Columns",
		class: "text-button",
		align: "right",
		wide: true,
		button: /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a(Icon, {
			name: "columns",
			size: 14
		}), /* @__PURE__ */ a("span", {
			class: "word",
			children: "Columns"
		})] }),
		children: () => /* @__PURE__ */ a("div", {
			class: "column-list",
			children: [s.columns.map((c) => /* @__PURE__ */ a("label", {
				class: "column-item",
				children: [/* @__PURE__ */ a("input", {
					type: "checkbox",
					checked: shown.has(c.name),
					disabled: c.name === lead,
					onChange: (e) => changeTable(s.id, { columns: {
						...state.columns,
						[c.name]: e.currentTarget.checked
					} }, "quiet")
				}), /* @__PURE__ */ a("span", { children: [/* @__PURE__ */ a("span", {
					class: "column-name",
					children: c.label
				}), c.doc && /* @__PURE__ */ a("span", {
					class: "column-doc",
					children: c.doc
				})] })]
			})), Object.keys(state.columns).length > 0 && /* @__PURE__ */ a("button", {
				type: "button",
				class: "option",
				onClick: () => changeTable(s.id, { columns: {} }, "quiet"),
				children: "Reset columns"
			})]
		})
	});
}
// src/sections/section.tsx
var FIND_FROM = 8;
var ErrorBoundary = class extends x$2 {
	state = { error: null };
	static getDerivedStateFromError(error) {
		return { error };
	}
	render() {
		return this.state.error ? /* @__PURE__ */ a(Broken, {
			title: this.props.title,
			why: this.state.error.message
		}) : this.props.children;
	}
};
function Broken({ title, why }) {
	return /* @__PURE__ */ a(Notice, {
		notice: {
			level: "error",
			text: `**${title}** could not be shown: ${why} The rest of the page works.`
		},
		children: /* @__PURE__ */ a(Copy, {
			class: "text-button",
			what: "the details",
			text: () => `${title}: ${why}`,
			children: "Copy details"
		})
	});
}
/** The table that a page's `find` filters: the first that is wide, else the first. */
function mainTable(report) {
	const tables = report.sections.filter((s) => s.kind === "table");
	return tables.find((t) => (t.span ?? 12) >= 8) ?? tables[0];
}
/** Filters above the sections, where the main table of the page has a chart of points: they apply to both, and are the legend of the chart. */
function PageFilters({ r }) {
	linkReport(r);
	const table = mainTable(r);
	if (!table || !lifted(table, true)) return null;
	const find = hasFind(table, true);
	const chips = Chips({
		s: table,
		state: tableOf(table.id)
	});
	if (!find && !chips) return null;
	return /* @__PURE__ */ a("div", {
		class: "page-filters",
		"data-filters": table.id,
		children: [
			find && /* @__PURE__ */ a(FindField, {
				value: findOf(table, true),
				label: `Filter ${table.title}`,
				onInput: (text) => setFind(table, true, text)
			}),
			chips,
			leavesOthers(table, r) && /* @__PURE__ */ a("span", {
				class: "quiet",
				children: [
					"Filters ",
					table.title,
					" and its ",
					r.sections.filter((s) => s.kind === "figure" && s.table === table.id).length > 1 ? "charts" : "chart",
					"; the rest of the page stays whole."
				]
			})
		]
	});
}
/** Whether a report has tables, figures or numbers that the filters of a table do not apply to. */
var leavesOthers = (table, r) => r.sections.some((s) => s !== table && !(s.kind === "figure" && s.table === table.id));
var lifted = (s, main) => main && hasChart(s) && (s.filters?.length ?? 0) > 0;
function hasFind(s, main) {
	const count = shownOf(s, main).of;
	return count >= FIND_FROM && (main || count > 12) || findOf(s, main) !== "";
}
function SectionCard({ section, report, lead }) {
	const span = Math.max(2, Math.min(12, section.span ?? 12));
	linkReport(report);
	const first = mainTable(report);
	const headline = section.weight === "headline" || section.kind === "facts" && section.style === "equation";
	const kind = section.kind === "facts" ? `facts-${section.style ?? "list"}` : `kind-${section.kind}`;
	const absent = section.kind === "facts" && section.style === "card" && !Object.values(section.values).some((v) => v !== null);
	const titled = section.title && !(section.kind === "facts" && headline);
	return /* @__PURE__ */ a("section", {
		class: `card span-${span} ${kind} ${headline ? "is-headline" : ""} ${absent ? "is-absent" : ""}`,
		id: `s-${section.id}`,
		"data-section": section.id,
		"aria-label": section.title || void 0,
		children: /* @__PURE__ */ a(ErrorBoundary, {
			title: section.title,
			children: [titled && /* @__PURE__ */ a(Heading, {
				section,
				main: section === first
			}), section.error ? /* @__PURE__ */ a(Broken, {
				title: section.title,
				why: section.error
			}) : /* @__PURE__ */ a(Body, {
				section,
				report,
				lead,
				main: section === first
			})]
		})
	});
}
function Body({ section, report, lead, main }) {
	switch (section.kind) {
		case "facts": return /* @__PURE__ */ a(Facts, {
			s: section,
			lead,
			headline: report.headline ?? ""
		});
		case "findings": return /* @__PURE__ */ a(Findings, { s: section });
		case "timeline": return /* @__PURE__ */ a(Timeline, {
			s: section,
			report,
			cards: (r) => /* @__PURE__ */ a("div", {
				class: "grid",
				children: r.sections.map((one) => /* @__PURE__ */ a(SectionCard, {
					section: one,
					report: r,
					lead: ""
				}, one.id))
			})
		});
		case "table": return /* @__PURE__ */ a(TableView, {
			s: section,
			report,
			main,
			shown: shownOf(section, main),
			twins: linkedTables(section, report)
		});
		case "figure": {
			const table = report.sections.find((s) => s.kind === "table" && s.id === section.table) ?? null;
			return /* @__PURE__ */ a(Figure, {
				s: section,
				table,
				twins: table ? linkedTables(table, report) : [],
				main: table === mainTable(report)
			});
		}
	}
}
function Heading({ section, main }) {
	const ranked = section.kind === "table" && isRanked(section);
	const subtitle = section.kind === "findings" ? findingsSubtitle(section) : ranked ? rankedSubtitle(section) : section.kind === "figure" ? figureSubtitle(section) : section.subtitle;
	return /* @__PURE__ */ a("div", {
		class: "card-head",
		children: [
			/* @__PURE__ */ a("div", {
				class: "card-title",
				children: [
					section.kind === "facts" && /* @__PURE__ */ a(CardMark, { s: section }),
					/* @__PURE__ */ a("h2", { children: section.title }),
					section.kind === "table" && !ranked && /* @__PURE__ */ a("span", {
						class: "count",
						children: countText(section, shownOf(section, main))
					}),
					subtitle && /* @__PURE__ */ a("span", {
						class: "subtitle",
						children: /* @__PURE__ */ a(Text, { text: subtitle })
					})
				]
			}),
			/* @__PURE__ */ a("div", {
				class: "card-tools",
				children: [
					section.kind === "table" && !ranked && /* @__PURE__ */ a(TableTools, {
						s: section,
						main
					}),
					section.kind === "facts" && /* @__PURE__ */ a(CardCount, { s: section }),
					section.kind === "figure" && /* @__PURE__ */ a(FigureTools, { s: section }),
					section.links?.map((link) => /* @__PURE__ */ a(ReportLink, { link }))
				]
			}),
			section.kind === "table" && !lifted(section, main) && /* @__PURE__ */ a(Chips, {
				s: section,
				state: tableOf(section.id)
			})
		]
	});
}
function TableTools({ s, main }) {
	const state = tableOf(s.id);
	return /* @__PURE__ */ a($, { children: [
		hasFind(s, main) && !lifted(s, main) && /* @__PURE__ */ a(FindField, {
			value: findOf(s, main),
			label: `Filter ${s.title}`,
			onInput: (text) => setFind(s, main, text)
		}),
		state.sort && /* @__PURE__ */ a("button", {
			type: "button",
			class: "text-button",
			onClick: () => changeTable(s.id, { sort: null }, "quiet"),
			children: "Reset order"
		}),
		s.columns.length > 3 && /* @__PURE__ */ a(ColumnChooser, {
			s,
			state
		}),
		/* @__PURE__ */ a("button", {
			type: "button",
			class: "text-button accent",
			"data-tip": "The shown rows and columns, in base units",
			onClick: () => saveTable(s, main),
			children: "CSV"
		})
	] });
}
/** The shown rows and columns as a file. */
function saveTable(s, main) {
	const [from, shown] = [csvAddress(s, main), shownOf(s, main)];
	if (from && !pickedOf(s)) return downloadFrom(from, `${s.id}.csv`);
	if (from && shown.order && shown.rows.filter(Boolean).length < shown.rows.length) return void pagedOf(s).loadAll(shown.order).then(() => saveTable(s, main));
	download(`${s.id}.csv`, csvOf(s, shownColumns(s).map((c) => c.column), shownOf(s, main).rows), "text/csv;charset=utf-8");
}
// src/pages/export.tsx
/** The whole report as a file: as it came, or from the server where tables of it are in pages. */
function saveReport(ready, paged) {
	const [name, from] = [`${page.peek()}.json`, requestOf(ready)];
	if (paged && from) downloadFrom(reportAddress(from.name, from.where, from.query), name);
	else download(name, JSON.stringify(ready, null, 1), "application/json");
}
/** Where the pages come from as one file: this one as it is shown, with the others at their defaults. live: with the address of this page. */
function htmlAddress(w, all, live = false) {
	const { query, step, device } = view.peek();
	const shown = new URLSearchParams(query).toString();
	const pages = `${page.peek()}${shown && `?${shown}`}`;
	return exportAddress(w, "html", {
		pages: all ? `${pages},all` : pages,
		step,
		device_limits: device,
		live: live ? here() : ""
	});
}
function Export() {
	const r = report.value.value;
	const ready = r?.available ? r : null;
	const tables = ready?.sections.filter((s) => s.kind === "table") ?? [];
	const original = runs.value.value?.features?.original;
	return /* @__PURE__ */ a(Popover, {
		label: "Export",
		tip: "Save tables, the report or the recording",
		class: "button",
		align: "right",
		button: /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a(Icon, { name: "download" }), /* @__PURE__ */ a("span", {
			class: "word",
			children: "Export"
		})] }),
		children: (close) => /* @__PURE__ */ a("div", {
			class: "list",
			children: [
				tables.map((t) => /* @__PURE__ */ a("button", {
					type: "button",
					class: "option",
					onClick: () => {
						saveTable(t, t === mainTable(ready));
						close();
					},
					children: [
						t.title,
						" as CSV",
						/* @__PURE__ */ a("span", {
							class: "note",
							children: [number(rowCount(t), 0), " rows"]
						})
					]
				})),
				ready && /* @__PURE__ */ a("button", {
					type: "button",
					class: "option",
					onClick: () => {
						saveReport(ready, tables.some((t) => t.pages));
						close();
					},
					children: "Whole report as JSON"
				}),
				ready?.files?.map((f) => /* @__PURE__ */ a("button", {
					type: "button",
					class: "option",
					onClick: () => {
						download(f.file, f.text, f.mimetype ?? "application/json");
						close();
					},
					children: [f.label, /* @__PURE__ */ a("span", {
						class: "note",
						children: f.file
					})]
				})),
				ready && where.value && !inFile && /* @__PURE__ */ a($, { children: [
					/* @__PURE__ */ a("a", {
						class: "option",
						href: htmlAddress(where.value, false),
						download: true,
						onClick: close,
						children: ["This page as HTML file", /* @__PURE__ */ a("span", {
							class: "note",
							children: "opens without a server"
						})]
					}),
					/* @__PURE__ */ a("a", {
						class: "option",
						href: htmlAddress(where.value, true),
						download: true,
						onClick: close,
						children: ["All pages as HTML file", /* @__PURE__ */ a("span", {
							class: "note",
							children: "opens without a server"
						})]
					}),
					/* @__PURE__ */ a("a", {
						class: "option",
						href: htmlAddress(where.value, true, true),
						download: true,
						onClick: close,
						children: ["All pages, with a link to this one", /* @__PURE__ */ a("span", {
							class: "note",
							children: "names this server"
						})]
					})
				] }),
				ready && where.value && !inFile && /* @__PURE__ */ a("a", {
					class: "option",
					href: exportAddress(where.value, "hatchet"),
					download: true,
					onClick: close,
					children: ["Hatchet profile (JSON)", /* @__PURE__ */ a("span", {
						class: "note",
						children: "for Hatchet and proton-viewer"
					})]
				}),
				where.value && !inFile && (original ? /* @__PURE__ */ a("a", {
					class: "option",
					href: traceAddress(where.value),
					download: true,
					children: "Original recording"
				}) : /* @__PURE__ */ a("div", {
					class: "none",
					children: "This server does not give out the original recording."
				}))
			]
		})
	});
}
// src/state/ways.ts
/** Stands where a person names the logdir. */
var LOGDIR = "LOGDIR";
var fields = (query) => Object.entries(query).filter(([, value]) => value !== "").sort(([a], [b]) => a < b ? -1 : 1);
/** A word as a shell takes it. */
var quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`;
/** The command that prints the same report. */
function commandOf(v) {
	const options = [...[
		["run", v.run],
		["worker", v.worker],
		["span", v.span],
		["step", v.step],
		["capture", v.capture],
		["device-limits", v.device]
	].filter(([, value]) => value), ...fields(v.query).map(([name, value]) => [name.replaceAll("_", "-"), value])];
	return [
		"tb-sol",
		"analyze",
		v.page,
		LOGDIR,
		...options.flatMap(([name, value]) => [`--${name}`, quoted(value)]),
		"--format",
		"text"
	].join(" ");
}
/** The line of Python that makes the same report. */
function pythonOf(v) {
	const text = JSON.stringify;
	const opened = [["run", v.run], ["capture", v.capture]].filter(([, value]) => value).map(([name, value]) => `, ${name}=${text(value)}`);
	const run = `sol.open(${text(LOGDIR)}${opened.join("")})`;
	const named = [["worker", v.worker], ["span", v.span]].filter(([, value]) => value).map(([name, value]) => `c.${name} == ${text(value)}`);
	const shown = named.length ? `next(c for c in ${run}.captures if ${named.join(" and ")})` : run;
	const options = [...[["step", v.step], ["device_limits", v.device]].filter(([, value]) => value), ...fields(v.query)].map(([name, value]) => `${name}=${text(value)}`);
	return `${shown}.analyze(${[text(v.page), ...options].join(", ")})`;
}
/** A link with the headline of the page as its words. */
function markdownOf(title, headline, address) {
	return `[${`${title}${headline && `: ${headline}`}`.replace(/\*\*|`/g, "").replace(/[[\]\\]/g, "\\$&").replace(/\s+/g, " ")}](${address.replaceAll("(", "%28").replaceAll(")", "%29")})`;
}
// src/pages/forms.tsx
/** This view in the live page that a file was saved from: names of run and worker are those of its own address, a file may leave them out. */
function liveHere() {
	const [base = "", hash = ""] = liveAddress().split("#", 2);
	const { run = "", worker = "", span = "" } = readHash(hash);
	return base + writeHash("", encode({
		...view.value,
		run,
		worker,
		span
	}));
}
var address = () => inFile ? liveHere() : here();
function LinkForms() {
	const r = report.value.value;
	const ready = r?.available ? r : null;
	const linked = !inFile || liveAddress() !== "";
	const figures = ready?.sections.filter((s) => s.kind === "figure" && s.title) ?? [];
	const forms = [
		[
			"Copy as Markdown link",
			"with the headline",
			() => markdownOf(ready.title, ready.headline ?? "", address())
		],
		[
			"Copy as command",
			"tb-sol analyze",
			() => commandOf(view.peek())
		],
		[
			"Copy as line of Python",
			"for a notebook",
			() => pythonOf(view.peek())
		]
	];
	return /* @__PURE__ */ a(Popover, {
		label: "Link in other forms",
		tip: "Markdown, command, Python, pictures",
		class: "ghost",
		align: "right",
		button: /* @__PURE__ */ a(Icon, { name: "down" }),
		children: (close) => /* @__PURE__ */ a("div", {
			class: "list",
			children: [forms.slice(linked && ready ? 0 : 1).map(([label, note, text]) => /* @__PURE__ */ a("button", {
				type: "button",
				class: "option",
				onClick: () => {
					copyText(text(), "the text");
					close();
				},
				children: [label, /* @__PURE__ */ a("span", {
					class: "note",
					children: note
				})]
			})), figures.flatMap((s) => ["png", "svg"].map((format) => /* @__PURE__ */ a("button", {
				type: "button",
				class: "option",
				onClick: () => {
					saveFigure(s, format, s.title);
					close();
				},
				children: [s.title, /* @__PURE__ */ a("span", {
					class: "note",
					children: format.toUpperCase()
				})]
			})))]
		})
	});
}
/** In a saved page the way to the live one, where it is known. */
function LiveLink() {
	if (!inFile || !liveAddress()) return null;
	return /* @__PURE__ */ a("a", {
		class: "button",
		href: liveHere(),
		target: "_blank",
		rel: "noopener noreferrer",
		"data-tip": "This view in the live page, which needs its server",
		children: [/* @__PURE__ */ a(Icon, { name: "link" }), /* @__PURE__ */ a("span", {
			class: "word stays",
			children: "Live page"
		})]
	});
}
// src/pages/kind.tsx
var MEMORY = {
	memory_snapshot: "allocator snapshot",
	memory_timeline: "memory timeline"
};
/** Whether it holds memory only: an allocator snapshot or a memory timeline. */
var isMemoryOnly = (span) => !!span.kind && span.kind in MEMORY;
/** The badge, note and tooltip of a recording; `companion` is the other recording of its worker. */
function kindOf(span) {
	if (span.kind === "sol_capture") return {
		badge: "SOL capture",
		note: "SOL capture",
		tip: `A SOL capture: every iteration is timed, and the work of the sampled ones is counted. It holds no device events${span.companion ? "; the profiler trace of this worker does" : ""}.`
	};
	if (isMemoryOnly(span)) {
		const name = MEMORY[span.kind];
		return {
			badge: name,
			note: name,
			tip: `Memory over time only${span.companion ? "; the other recording of this worker shows it together with what ran" : ""}.`
		};
	}
	if (span.companion) return {
		badge: "trace + SOL capture",
		note: "trace + SOL capture",
		tip: "A profiler trace joined with the SOL capture of the same worker: times come from the trace, iterations and whatever the trace cannot name from the capture."
	};
	return {
		badge: "",
		note: "trace",
		tip: "A trace of the PyTorch profiler."
	};
}
/** Whether a run has more than plain traces: then lists show the kind of every recording. */
var hasSeveralKinds = (run) => run.workers.some((w) => w.spans.some((s) => kindOf(s).badge !== ""));
var KindBadge = ({ span }) => {
	const { badge } = kindOf(span);
	return badge ? /* @__PURE__ */ a("span", {
		class: "badge kind",
		children: badge
	}) : null;
};
// src/state/limits.ts
/** The parts of an expression. What cannot be parsed stays in the key: the server reports what is wrong. */
function splitLimits(text) {
	const found = /^([^@+]*?)\s*(?:@\s*(\d+(?:\.\d+)?)\s*MHz)?\s*(\+\s*sparse)?$/i.exec(text.trim());
	return found ? {
		key: found[1],
		clock: found[2] ?? "",
		sparse: found[3] !== void 0
	} : {
		key: text.trim(),
		clock: "",
		sparse: false
	};
}
/** The expression of the parts; a clock that is no number is left for the server to refuse. */
var joinLimits = ({ key, clock, sparse }) => key + (clock ? `@${clock}${/[a-z]$/i.test(clock) ? "" : "MHz"}` : "") + (sparse ? "+sparse" : "");
// src/pages/limits.tsx
var FORM = "H100_SXM@1410MHz+sparse";
var ORIGIN = {
	datasheet: "From a data sheet of the manufacturer",
	derived: "Derived from units, rate and clock",
	third_party: "Published, but not in a data sheet of the manufacturer",
	unverified: "From the table; no source confirms it",
	measured: "Measured on this machine",
	user: "From a device file"
};
var METHOD = {
	exact: "matched by its full name",
	token: "matched by words of its name",
	memory: "matched by its memory size",
	units: "matched by its number of units",
	derived: "derived from its compute capability",
	override: "chosen, not as recorded",
	measured: "measured on this machine"
};
/** The mark of a figure that no source confirms; undefined for all others. */
function markOf(figure, unverified) {
	return figure.provenance === "unverified" || unverified.includes(figure.name) ? {
		state: "unverified",
		why: "no source confirms this figure"
	} : void 0;
}
/** The labels of figures that no source confirms. */
function unconfirmed(device) {
	if (!device.figures) return device.unverified ?? [];
	return device.figures.filter((f) => markOf(f, device.unverified ?? [])).map((f) => f.label);
}
var sentence$1 = (text) => (text[0]?.toUpperCase() ?? "") + text.slice(1);
/** Where a figure comes from, in words and with its source. */
var originOf = (f) => [ORIGIN[f.provenance ?? ""] ?? f.provenance, f.source].filter(Boolean).join(": ");
function Limits() {
	const analyses = pages.value.value;
	const device = analyses?.device ?? null;
	const now = view.value.device;
	const unsure = device ? unconfirmed(device).join(", ") : "";
	const tip = [analyses?.device_note, unsure && `Not verified: ${unsure}`].filter(Boolean).join("\n");
	return /* @__PURE__ */ a(Pick, {
		label: "Device limits",
		value: device?.name || device?.key || now || "unknown",
		unsure: !!unsure,
		class: "divided long",
		tip,
		disabled: !analyses || inFile,
		children: (close) => /* @__PURE__ */ a(Card, {
			device,
			note: analyses?.device_note ?? "",
			keys: analyses?.devices ?? [],
			close
		})
	});
}
function Card({ device, note, keys, close }) {
	const now = splitLimits(view.value.device);
	const [checking, setChecking] = d$2(false);
	const [wrong, setWrong] = d$2(null);
	const [clock, setClock] = d$2(now.clock);
	/** Lets the server check the text before the page changes. */
	const take = async (text) => {
		const w = where.peek();
		if (!w || checking) return;
		setChecking(true);
		setWrong(null);
		try {
			const answer = await getAnalyses(w, text);
			if (text && !answer.device) {
				setWrong({
					message: sentence$1(answer.device_note ?? "") || `No limits are known for ${text}.`,
					hint: ""
				});
				return;
			}
			change({ device: text }, "push");
			close();
		} catch (error) {
			if (!(error instanceof ApiError)) throw error;
			setWrong({
				message: sentence$1(error.body.message),
				hint: error.body.hint || `Write it as \`${FORM}\`: a device, a clock in MHz, sparse peaks; the last two may be left out.`
			});
		} finally {
			setChecking(false);
		}
	};
	return /* @__PURE__ */ a("div", {
		class: "limits",
		"aria-busy": checking,
		children: [
			device ? /* @__PURE__ */ a(Figures, { device }) : /* @__PURE__ */ a("p", {
				class: "limits-note",
				children: sentence$1(note) || "No limits are known for this device."
			}),
			/* @__PURE__ */ a("div", {
				class: "limits-tools",
				children: [/* @__PURE__ */ a(Chip, {
					on: now.sparse,
					tip: "Matrix peaks with 2:4 structured sparsity, which only pruned weights reach",
					onToggle: () => void take(joinLimits({
						...now,
						sparse: !now.sparse
					})),
					children: "2:4 sparse peaks"
				}), /* @__PURE__ */ a("form", {
					class: "form-line",
					onSubmit: (e) => {
						e.preventDefault();
						take(joinLimits({
							...now,
							clock: clock.trim()
						}));
					},
					children: [/* @__PURE__ */ a("label", {
						class: "field",
						children: [/* @__PURE__ */ a("span", {
							class: "field-label",
							children: "Clock"
						}), /* @__PURE__ */ a("input", {
							class: "typed bound",
							type: "text",
							inputMode: "decimal",
							size: 6,
							placeholder: "table",
							value: clock,
							onInput: (e) => setClock(e.currentTarget.value)
						})]
					}), /* @__PURE__ */ a("span", {
						class: "quiet",
						children: "MHz"
					})]
				})]
			}),
			wrong && /* @__PURE__ */ a("p", {
				class: "limits-wrong",
				role: "alert",
				children: [/* @__PURE__ */ a(Text, { text: wrong.message }), wrong.hint && /* @__PURE__ */ a("span", {
					class: "limits-hint",
					children: /* @__PURE__ */ a(Text, { text: wrong.hint.length > 160 ? wrong.hint.slice(0, 158) + "…" : wrong.hint })
				})]
			}),
			/* @__PURE__ */ a(List, {
				label: "Devices",
				value: view.value.device,
				onPick: (key) => void take(key),
				free: {
					ask: `A device, or ${FORM}`,
					take: (text) => void take(text)
				},
				options: [{
					value: "",
					text: "As recorded"
				}, ...keys.map((key) => ({
					value: key,
					text: key
				}))]
			})
		]
	});
}
function Figures({ device }) {
	const unverified = device.unverified ?? [];
	const figures = device.figures ?? [];
	return /* @__PURE__ */ a($, { children: [
		/* @__PURE__ */ a("div", {
			class: "limits-head",
			children: [/* @__PURE__ */ a("strong", { children: device.name || device.key }), /* @__PURE__ */ a("span", {
				class: "quiet",
				children: device.method ? METHOD[device.method] ?? device.method : ""
			})]
		}),
		figures.length > 0 && /* @__PURE__ */ a("dl", {
			class: "limits-figures",
			tabIndex: 0,
			"aria-label": "Figures",
			children: figures.map((f) => /* @__PURE__ */ a("div", { children: [/* @__PURE__ */ a("dt", { children: f.label }), /* @__PURE__ */ a("dd", { children: /* @__PURE__ */ a(Value, {
				value: f.value,
				unit: f.unit ?? "",
				mark: markOf(f, unverified),
				doc: originOf(f)
			}) })] }))
		}),
		device.caution && /* @__PURE__ */ a("p", {
			class: "limits-note caution",
			children: /* @__PURE__ */ a(Text, { text: sentence$1(device.caution) })
		}),
		device.notes && /* @__PURE__ */ a("p", {
			class: "limits-note",
			children: /* @__PURE__ */ a(Text, { text: sentence$1(device.notes) })
		}),
		device.source && device.source !== "table" && /* @__PURE__ */ a("p", {
			class: "limits-note",
			children: ["From the device file ", /* @__PURE__ */ a("code", { children: device.source })]
		})
	] });
}
// src/state/family.ts
/** The analysis whose page an analysis is on: itself, or the one it is a further view of (one level; an unknown name, or its own, counts as none). */
function headOf(all, name) {
	const own = all.find((a) => a.name === name) ?? null;
	if (!own?.under || own.under === own.name) return own;
	const head = all.find((a) => a.name === own.under);
	return head && !isView(all, head) ? head : own;
}
/** Whether it is a further view of a known analysis that is not a further view itself. */
var isView = (all, a) => !!a.under && a.under !== a.name && all.some((head) => head.name === a.under && (!head.under || head.under === head.name));
/** What the page list names: all but the further views. */
var entriesOf = (all) => all.filter((a) => !isView(all, a));
/** The tabs of a page: the analysis and its further views in their order, one alone where it has none. */
function familyOf(all, name) {
	const head = headOf(all, name);
	if (!head) return [];
	return [head, ...all.filter((a) => isView(all, a) && a.under === head.name)];
}
// src/pages/search.tsx
var searchOpen = y$1(false);
var SEARCH_KEY = /Mac|iP(hone|ad)/.test(navigator.platform) ? "⌘K" : "Ctrl K";
var SETTLES = 150;
/** Asks the server when typing pauses; the answer to the last text counts, and one that is being read is asked again. */
function useFound(text) {
	const [asked, setAsked] = d$2({
		state: "idle",
		found: null
	});
	const w = where.value;
	A$1(() => {
		if (!w) return setAsked({
			state: "idle",
			found: null
		});
		const stop = new AbortController();
		setAsked((now) => ({
			state: "waiting",
			found: now.found
		}));
		const ask = async () => {
			try {
				const found = await getFound(w, text, view.peek().device, stop.signal);
				if (!stop.signal.aborted) setAsked({
					state: "ready",
					found
				});
			} catch (error) {
				if (stop.signal.aborted) return;
				if (!(error instanceof ApiError)) throw error;
				if (!error.loading) return setAsked({
					state: "error",
					found: null,
					message: error.message
				});
				setAsked({
					state: "reading",
					found: null
				});
				timer = window.setTimeout(() => void ask(), 800);
			}
		};
		let timer = window.setTimeout(() => void ask(), text ? SETTLES : 0);
		return () => {
			stop.abort();
			window.clearTimeout(timer);
		};
	}, [
		text,
		w?.run,
		w?.worker,
		w?.span
	]);
	return asked;
}
function Search() {
	return searchOpen.value ? /* @__PURE__ */ a(Palette, {}) : null;
}
function Palette() {
	const [text, setText] = d$2("");
	const [at, setAt] = d$2(0);
	const input = T$1(null);
	const list = T$1(null);
	const back = T$1(document.activeElement);
	const asked = useFound(text.trim());
	const groups = ordered(text, localGroups(text, pages.value.value?.analyses ?? catalog.value, w$2(() => (runs.value.value?.runs ?? []).map((r) => r.name), [runs.value.value]), chosen$3.value?.run.name ?? ""), foundGroups(asked.found, text));
	const isComplete = !where.value || asked.state === "error" || asked.found?.query === text.trim();
	const results = groups.flatMap((g) => g.results);
	const place = Math.min(at, results.length - 1);
	F$1(() => {
		input.current?.focus();
	}, []);
	A$1(() => {
		list.current?.querySelector("[aria-selected='true']")?.scrollIntoView({ block: "nearest" });
	}, [place, results.length]);
	const close = () => {
		searchOpen.value = false;
		if (back.current instanceof HTMLElement) back.current.focus({ preventScroll: true });
	};
	const open = (one) => {
		if (!one) return;
		close();
		go(viewOf(one.go), "push");
		if (one.table) showTable(one.table);
	};
	const key = (event) => {
		if (event.isComposing) return;
		if (event.key === "Escape") {
			event.stopPropagation();
			close();
		} else if (event.key === "Enter") open(results[place]);
		else if (event.key === "Tab") input.current?.focus();
		else if (moved$1(place, event.key, results.length) !== place) setAt(moved$1(place, event.key, results.length));
		else return;
		event.preventDefault();
	};
	let index = -1;
	return /* @__PURE__ */ a("div", {
		class: "veil high",
		onMouseDown: (e) => {
			if (e.target === e.currentTarget) close();
		},
		children: /* @__PURE__ */ a("div", {
			class: "dialog palette",
			role: "dialog",
			"aria-modal": "true",
			"aria-label": "Search",
			onKeyDown: key,
			children: [
				/* @__PURE__ */ a("label", {
					class: "search",
					children: [
						/* @__PURE__ */ a(Icon, {
							name: "search",
							size: 16
						}),
						/* @__PURE__ */ a("input", {
							ref: input,
							type: "text",
							role: "combobox",
							"aria-label": "Search",
							placeholder: "Search pages, runs, findings, kernels, operators, modules",
							autocomplete: "off",
							spellcheck: false,
							maxLength: 200,
							"aria-expanded": results.length > 0,
							"aria-controls": "search-results",
							"aria-autocomplete": "list",
							"aria-activedescendant": place >= 0 ? `search-${place}` : void 0,
							value: text,
							onInput: (e) => {
								setText(e.currentTarget.value);
								setAt(0);
							}
						}),
						/* @__PURE__ */ a("kbd", { children: "Esc" })
					]
				}),
				/* @__PURE__ */ a("div", {
					class: "palette-results",
					id: "search-results",
					ref: list,
					role: "listbox",
					"aria-label": "Results",
					"aria-busy": !isComplete,
					children: groups.map((g) => /* @__PURE__ */ a("div", {
						role: "group",
						"aria-label": g.title,
						children: [/* @__PURE__ */ a("div", {
							class: "palette-group",
							role: "presentation",
							children: [/* @__PURE__ */ a("span", { children: g.title }), g.more > 0 && /* @__PURE__ */ a("span", {
								class: "quiet",
								children: [g.more.toLocaleString("en-US"), " more; type to narrow"]
							})]
						}), g.results.map((one) => {
							const own = ++index;
							return /* @__PURE__ */ a("div", {
								id: `search-${own}`,
								role: "option",
								"aria-selected": own === place,
								class: `option ${own === place ? "on" : ""}`,
								"data-tip": one.tip || void 0,
								onMouseMove: () => {
									if (own !== place) setAt(own);
								},
								onClick: () => open(one),
								children: [one.table ? /* @__PURE__ */ a(Middle, { text: one.text }) : /* @__PURE__ */ a("span", {
									class: "palette-text",
									children: one.text
								}), one.note && /* @__PURE__ */ a("span", {
									class: "note",
									children: one.note
								})]
							});
						})]
					}))
				}),
				/* @__PURE__ */ a("p", {
					class: "none",
					role: "status",
					children: statusOf(asked, text.trim(), results.length)
				})
			]
		})
	});
}
/** A link, on this recording; of a run, its own page of what is shown now. */
var viewOf = (link) => link.analysis ? linkView(link) : {
	...pageView(view.peek().page),
	run: link.query?.["run"] ?? "",
	worker: "",
	span: "",
	step: "",
	capture: ""
};
/** Scrolls to the table that was filtered, once its page is there; not after a move elsewhere. */
function showTable(id) {
	const wanted = view.peek();
	const look = (left) => {
		if (view.peek().page !== wanted.page || !left) return;
		const table = document.querySelector(`[data-section="${CSS.escape(id)}"]`);
		if (table && report.peek().value?.analysis === wanted.page) table.scrollIntoView({ block: "start" });
		else window.setTimeout(() => look(left - 1), 100);
	};
	window.setTimeout(() => look(50), 50);
}
function statusOf(asked, text, count) {
	if (asked.state === "error") return `Names of this recording could not be searched: ${asked.message}`;
	if (asked.state === "reading") return "The recording is being read; its names follow.";
	if (asked.state === "waiting" && !asked.found) return "Searching…";
	if (!count && asked.state !== "waiting") return `Nothing is named “${text}”.`;
	return "Times are of the whole recording. ↑ ↓ move, Enter opens.";
}
// src/pages/help.tsx
var helpOpen = y$1(false);
/** The letter after `g` for each page. */
var LETTERS$1 = {
	o: "overview",
	f: "findings",
	r: "roofline",
	m: "modules",
	p: "phases",
	c: "memcpy",
	k: "kernels",
	a: "operators",
	s: "steps",
	i: "iterations",
	b: "gpu_breakdown",
	y: "memory",
	e: "memory_plan",
	w: "whatif",
	h: "health",
	l: "links"
};
var KEYS = [
	[SEARCH_KEY, "search pages, runs, findings, kernels, operators, modules"],
	["/", "filter the page's table"],
	["?", "this card"],
	["[ ]", "previous and next step"],
	["↑ ↓", "move in a table"],
	["→ ←", "open and close a branch"],
	["*", "open all below"],
	["Enter", "open or select the row; in a chart's Select, an area by numbers"],
	["c", "copy the row"],
	["Esc", "one step back: close, clear the selection"]
];
/** The letters of the pages that there are, each with its title. */
var letters = () => Object.entries(LETTERS$1).flatMap(([letter, name]) => {
	const found = catalog.value.find((a) => a.name === name);
	return found ? [`${letter} ${found.title}`] : [];
}).join(", ");
var SIGNS = [
	["≈ 42.4 %", "estimated, or only partly modeled; hover for the reason"],
	["63 GB/s ?", "the limit is from a table, not from a data sheet or a measurement"],
	["127.3 % ⚑", "above its limit: shown as it is, never cut"],
	["—", "not known or not recorded; hover for the reason. Never zero"],
	["< 0.1", "more than zero, less than can be shown"],
	["≥ 508 GB", "at least this much"]
];
function Help() {
	const card = T$1(null);
	A$1(() => {
		if (helpOpen.value) card.current?.focus();
	}, [helpOpen.value]);
	if (!helpOpen.value) return null;
	const close = () => {
		helpOpen.value = false;
	};
	return /* @__PURE__ */ a("div", {
		class: "veil",
		onClick: (e) => {
			if (e.target === e.currentTarget) close();
		},
		children: /* @__PURE__ */ a("div", {
			ref: card,
			class: "dialog",
			role: "dialog",
			"aria-modal": "true",
			"aria-label": "Help and keys",
			tabIndex: -1,
			onKeyDown: (e) => {
				if (e.key === "Escape") {
					e.stopPropagation();
					close();
				}
			},
			children: [/* @__PURE__ */ a("div", {
				class: "dialog-head",
				children: [/* @__PURE__ */ a("h2", { children: "Help and keys" }), /* @__PURE__ */ a("button", {
					type: "button",
					class: "ghost",
					"aria-label": "Close",
					onClick: close,
					children: /* @__PURE__ */ a(Icon, { name: "close" })
				})]
			}), /* @__PURE__ */ a("div", {
				class: "help-grid",
				children: [/* @__PURE__ */ a("div", { children: [/* @__PURE__ */ a("h3", { children: "Keys" }), /* @__PURE__ */ a("dl", {
					class: "keys-list",
					children: [KEYS.map(([k, text]) => /* @__PURE__ */ a("div", { children: [/* @__PURE__ */ a("dt", { children: k.split(" ").map((one) => /* @__PURE__ */ a("kbd", { children: one })) }), /* @__PURE__ */ a("dd", { children: text })] })), /* @__PURE__ */ a("div", { children: [/* @__PURE__ */ a("dt", { children: /* @__PURE__ */ a("kbd", { children: "g" }) }), /* @__PURE__ */ a("dd", { children: ["then a letter: ", letters()] })] })]
				})] }), /* @__PURE__ */ a("div", { children: [
					/* @__PURE__ */ a("h3", { children: "How a number shows what is known" }),
					/* @__PURE__ */ a("dl", {
						class: "keys-list",
						children: SIGNS.map(([k, text]) => /* @__PURE__ */ a("div", { children: [/* @__PURE__ */ a("dt", {
							class: "sign-dt",
							children: k
						}), /* @__PURE__ */ a("dd", { children: text })] }))
					}),
					/* @__PURE__ */ a("p", {
						class: "quiet",
						children: "The speed of light of an operator is the least time its arithmetic and its bytes can take on this device. Time above that limit is what optimization can save. Every view is a link: the address holds the page, the selection, filters, sorting and what is opened."
					}),
					failures.value.length > 0 && /* @__PURE__ */ a($, { children: [
						/* @__PURE__ */ a("h3", { children: "Analyses that failed to load" }),
						/* @__PURE__ */ a("ul", {
							class: "failures",
							children: failures.value.map((f) => /* @__PURE__ */ a("li", { children: [
								/* @__PURE__ */ a("strong", { children: f.name }),
								" ",
								/* @__PURE__ */ a("span", {
									class: "quiet",
									children: f.reason
								})
							] }))
						}),
						/* @__PURE__ */ a("p", {
							class: "quiet",
							children: /* @__PURE__ */ a(Text, { text: "Install the Python package that the error names, reinstall `tb_sol_plugin`, or correct the module of the analysis; then restart the server. `tb-sol doctor` prints the same errors." })
						})
					] }),
					runs.value.value?.features?.version && /* @__PURE__ */ a("p", {
						class: "quiet",
						children: ["tb_sol_plugin ", runs.value.value.features.version]
					})
				] })]
			})]
		})
	});
}
// src/pages/nav.tsx
var menuOpen = y$1(false);
var GROUPS = [
	"",
	"Time",
	"Speed of light",
	"Run",
	"Experimental"
];
/** The first sentence or clause of a reason, whole. */
function shortReason(because) {
	return ((because ?? "").split(/(?<=[.;:])\s/)[0] ?? "").replace(/[.;:]$/, "");
}
function Nav() {
	const all = entriesOf(catalog.value);
	const foot = all.filter((a) => a.group === "foot");
	const rail = narrow.value && !slim.value;
	return /* @__PURE__ */ a($, { children: [slim.value && menuOpen.value && /* @__PURE__ */ a("div", {
		class: "nav-veil",
		onClick: () => {
			menuOpen.value = false;
		}
	}), /* @__PURE__ */ a("nav", {
		class: `nav ${rail ? "rail" : ""} ${slim.value && menuOpen.value ? "open" : ""}`,
		"aria-label": "Pages",
		onKeyDown: (e) => {
			if (e.key === "Escape") menuOpen.value = false;
		},
		children: [
			/* @__PURE__ */ a("div", {
				class: "nav-head",
				children: [/* @__PURE__ */ a(Logo, {}), /* @__PURE__ */ a("span", {
					class: "nav-name",
					children: "Speed of light"
				})]
			}),
			/* @__PURE__ */ a("div", {
				class: "nav-groups",
				children: [GROUPS.map((group) => {
					const items = all.filter((a) => (a.group ?? "") === group);
					if (!items.length) return null;
					return /* @__PURE__ */ a("div", {
						class: "nav-group",
						role: "group",
						"aria-label": group || "Overview",
						children: [group && /* @__PURE__ */ a("div", {
							class: "nav-title",
							children: group
						}), items.map((a$7) => /* @__PURE__ */ a(Item, {
							a: a$7,
							rail
						}))]
					});
				}), failures.value.length > 0 && /* @__PURE__ */ a("div", {
					class: "nav-group",
					role: "group",
					"aria-label": "Failed to load",
					children: [/* @__PURE__ */ a("div", {
						class: "nav-title",
						children: "Failed to load"
					}), failures.value.map((f) => /* @__PURE__ */ a(FailedItem, {
						f,
						rail
					}))]
				})]
			}),
			/* @__PURE__ */ a("div", {
				class: "nav-foot",
				children: [foot.map((a$8) => /* @__PURE__ */ a(Item, {
					a: a$8,
					rail
				})), /* @__PURE__ */ a("button", {
					type: "button",
					class: "nav-item",
					"data-tip": rail ? "Help and keys" : void 0,
					"aria-label": "Help and keys",
					onClick: () => {
						helpOpen.value = true;
						menuOpen.value = false;
					},
					children: [
						/* @__PURE__ */ a(Icon, { name: "help" }),
						/* @__PURE__ */ a("span", {
							class: "nav-text",
							children: "Help and keys"
						}),
						/* @__PURE__ */ a("kbd", { children: "?" })
					]
				})]
			})
		]
	})] });
}
function Item({ a: a$9, rail }) {
	const off = a$9.available === false;
	const on = headOf(catalog.value, page.value)?.name === a$9.name;
	const reason = off ? shortReason(a$9.because) : "";
	const tip = rail ? reason ? `${a$9.title}: ${reason}` : a$9.title : off ? a$9.because : a$9.question;
	return /* @__PURE__ */ a(ViewLink, {
		view: pageView(a$9.name),
		class: `nav-item ${on ? "on" : ""} ${off ? "off" : ""}`,
		tip: tip ?? "",
		label: off ? [
			a$9.title,
			reason,
			"not available",
			a$9.because !== reason && a$9.because
		].filter(Boolean).join(", ") : a$9.count ? `${a$9.title}, ${a$9.count}` : a$9.title,
		current: on && (familyOf(catalog.value, a$9.name).length > 1 ? "within" : true),
		onGo: () => {
			menuOpen.value = false;
		},
		children: [
			/* @__PURE__ */ a(Icon, { name: a$9.icon ?? a$9.name }),
			/* @__PURE__ */ a("span", {
				class: "nav-text",
				children: [a$9.title, reason && /* @__PURE__ */ a($, { children: [" ", /* @__PURE__ */ a("span", {
					class: "nav-reason",
					children: reason
				})] })]
			}),
			" ",
			!!a$9.count && /* @__PURE__ */ a("span", {
				class: "nav-count",
				children: a$9.count
			})
		]
	});
}
/** An analysis that could not be loaded: its page says why and what helps. */
function FailedItem({ f, rail }) {
	const on = page.value === f.name;
	return /* @__PURE__ */ a(ViewLink, {
		view: pageView(f.name),
		class: `nav-item off ${on ? "on" : ""}`,
		tip: rail ? `${f.name}: ${f.reason}` : f.reason,
		label: `${f.name}, ${f.reason}, failed to load`,
		current: on,
		onGo: () => {
			menuOpen.value = false;
		},
		children: [/* @__PURE__ */ a(Icon, { name: "error" }), /* @__PURE__ */ a("span", {
			class: "nav-text",
			children: [
				f.name,
				" ",
				/* @__PURE__ */ a("span", {
					class: "nav-reason any",
					children: f.reason
				})
			]
		})]
	});
}
// src/pages/bar.tsx
/** Letters at the beginning of a name that the bar shows in any case. */
var SHOWN = 6;
function Bar() {
	const c = chosen$3.value;
	const list = runs.value.value;
	const analyses = pages.value.value;
	return /* @__PURE__ */ a("header", {
		class: "bar",
		children: [
			slim.value && /* @__PURE__ */ a("button", {
				type: "button",
				class: "ghost",
				"aria-label": "Pages",
				"aria-expanded": menuOpen.value,
				onClick: () => {
					menuOpen.value = !menuOpen.value;
				},
				children: /* @__PURE__ */ a(Icon, { name: "menu" })
			}),
			c && list ? /* @__PURE__ */ a("div", {
				class: "picks",
				children: [
					/* @__PURE__ */ a(Pick, {
						label: "Run",
						class: "long name",
						value: c.run.name || ".",
						part: distinctParts(list.runs.map((r) => r.name), SHOWN).get(c.run.name),
						tip: c.span.file ?? "",
						badge: slim.value ? /* @__PURE__ */ a(KindBadge, { span: c.span }) : void 0,
						children: (close) => /* @__PURE__ */ a(RunList, {
							runs: list.runs,
							value: c.run.name,
							onPick: (run) => {
								go({
									...view.peek(),
									run,
									worker: "",
									span: "",
									step: "",
									capture: "",
									tables: {},
									figures: {},
									...run === view.peek().base && NO_BASE
								}, "push");
								close();
							}
						})
					}),
					!slim.value && /* @__PURE__ */ a(Pick, {
						label: "Worker",
						value: workerLabel(c.worker.name, c.worker.rank, c.run.workers.filter((w) => w === c.worker || !isJoined(w)).length),
						part: c.worker.rank === null || c.worker.rank === void 0 ? distinctParts(c.run.workers.map((w) => w.name), SHOWN).get(c.worker.name) : void 0,
						tip: c.worker.name,
						class: "divided long name second",
						children: (close) => /* @__PURE__ */ a(List, {
							label: "Workers",
							value: c.worker.name,
							options: c.run.workers.map((w) => ({
								value: w.name,
								text: w.name,
								note: workerNote(w, hasSeveralKinds(c.run))
							})),
							onPick: (worker) => {
								change({
									worker,
									span: "",
									step: ""
								}, "push");
								close();
							}
						})
					}),
					!slim.value && /* @__PURE__ */ a(Pick, {
						label: "Span",
						value: `${c.worker.spans.indexOf(c.span) + 1} of ${c.worker.spans.length}`,
						badge: /* @__PURE__ */ a(KindBadge, { span: c.span }),
						tip: kindOf(c.span).tip,
						children: (close) => /* @__PURE__ */ a(List, {
							foot: /* @__PURE__ */ a(OtherRecordingLink, {
								span: c.span,
								onGo: close
							}),
							label: "Spans",
							value: c.span.name,
							options: c.worker.spans.map((s, i) => ({
								value: s.name,
								text: s.label || s.file || s.name || String(i + 1),
								note: [hasSeveralKinds(c.run) ? kindOf(s).note : "", s.size ? human(s.size, "B") : ""].filter(Boolean).join(" · ")
							})),
							onPick: (span) => {
								change({
									span,
									step: ""
								}, "push");
								close();
							}
						})
					}),
					/* @__PURE__ */ a(CapturePick, {
						list,
						chosen: c
					}),
					/* @__PURE__ */ a(BasePick, {
						list: list.runs,
						chosen: c
					}),
					/* @__PURE__ */ a(Steps, {
						steps: analyses?.steps ?? [],
						loading: !analyses
					}),
					!slim.value && /* @__PURE__ */ a(Limits, {})
				]
			}) : /* @__PURE__ */ a("div", {
				class: "picks",
				children: /* @__PURE__ */ a("div", {
					class: "pick still",
					children: [/* @__PURE__ */ a("span", {
						class: "pick-label",
						children: "Logdir"
					}), /* @__PURE__ */ a("span", {
						class: "pick-value",
						children: list?.scan.roots?.join(", ") || "…"
					})]
				})
			}),
			/* @__PURE__ */ a("div", {
				class: "bar-tools",
				children: [
					list && /* @__PURE__ */ a("button", {
						type: "button",
						class: "button seek",
						"aria-label": `Search ${SEARCH_KEY}`,
						"aria-haspopup": "dialog",
						"aria-keyshortcuts": "Control+K Meta+K",
						"data-tip": "Search pages, runs, findings, kernels, operators, modules",
						onClick: () => {
							searchOpen.value = true;
						},
						children: [
							/* @__PURE__ */ a(Icon, { name: "search" }),
							/* @__PURE__ */ a("span", {
								class: "word stays",
								children: "Search"
							}),
							" ",
							/* @__PURE__ */ a("kbd", { children: SEARCH_KEY })
						]
					}),
					c || needsNoRecording.value ? /* @__PURE__ */ a($, { children: [
						/* @__PURE__ */ a(LiveLink, {}),
						/* @__PURE__ */ a("span", {
							class: "link-forms",
							children: [/* @__PURE__ */ a(Copy, {
								what: "the link",
								label: "Copy link",
								text: here,
								children: [/* @__PURE__ */ a(Icon, { name: "link" }), /* @__PURE__ */ a("span", {
									class: "word",
									children: "Copy link"
								})]
							}), !slim.value && /* @__PURE__ */ a(LinkForms, {})]
						}),
						!slim.value && /* @__PURE__ */ a(Export, {})
					] }) : /* @__PURE__ */ a("button", {
						type: "button",
						class: "button",
						onClick: () => void rescan(),
						children: [/* @__PURE__ */ a(Icon, { name: "again" }), /* @__PURE__ */ a("span", {
							class: "word",
							children: "Scan again"
						})]
					}),
					!hosted && /* @__PURE__ */ a("button", {
						type: "button",
						class: "ghost",
						"aria-label": dark.value ? "Light theme" : "Dark theme",
						"data-tip": dark.value ? "Light theme" : "Dark theme",
						onClick: toggleTheme,
						children: /* @__PURE__ */ a(Icon, { name: dark.value ? "sun" : "moon" })
					})
				]
			})
		]
	});
}
/** The runs, each with what is known of it without opening it; the names do not wait for that. */
function RunList({ runs: all, value, onPick }) {
	const [known, setKnown] = d$2(/* @__PURE__ */ new Map());
	A$1(() => {
		const stop = new AbortController();
		getSummaries(stop.signal).then((found) => setKnown(new Map(found.runs.map((s) => [s.run, s]))), () => void 0);
		return () => stop.abort();
	}, []);
	return /* @__PURE__ */ a(List, {
		label: "Runs",
		value,
		options: all.map((r) => ({
			value: r.name,
			text: r.name || ".",
			note: r.workers.length > 1 ? `${r.workers.length} workers` : "",
			detail: summaryText(known.get(r.name))
		})),
		onPick
	});
}
function workerLabel(name, rank, count) {
	const text = rank !== null && rank !== void 0 ? `rank ${rank}` : name;
	return count > 1 ? `${text} of ${count}` : text;
}
function workerNote(w, kinds) {
	return [w.rank !== null && w.rank !== void 0 ? `rank ${w.rank}` : "", kinds ? [...new Set(w.spans.map((s) => kindOf(s).note))].join(", ") : ""].filter(Boolean).join(" · ");
}
/** A link from a SOL capture to the trace of the same worker, and back. */
function OtherRecordingLink({ span, onGo }) {
	const other = span.companion;
	if (!other) return null;
	const text = isMemoryOnly(span) ? "Open the recording that also shows this memory" : span.kind === "sol_capture" ? "Open the profiler trace of this worker" : "Open the SOL capture of this worker";
	return /* @__PURE__ */ a("div", {
		class: "none",
		children: /* @__PURE__ */ a(ViewLink, {
			view: {
				...view.value,
				worker: other.worker,
				span: other.span,
				step: "",
				tables: {},
				figures: {}
			},
			class: "link",
			onGo,
			children: text
		})
	});
}
/** `550–554 · 5 of 5`, `6 · 1 of 5`. */
function stepsLabel(steps, text) {
	if (!steps.length) return "whole recording";
	const range = parseSteps(text);
	const inside = range ? steps.filter((s) => s.number >= range.from && s.number <= range.to) : steps;
	if (!inside.length) return `${text} · none of ${steps.length}`;
	const [a, b] = [inside[0].number, inside.at(-1).number];
	return `${a === b ? a : `${a}–${b}`} · ${inside.length} of ${steps.length}`;
}
function Steps({ steps, loading }) {
	const now = view.value.step;
	const range = parseSteps(now);
	const pick = (value, shift) => {
		if (shift && range && value) {
			const n = Number(value);
			const [from, to] = [Math.min(range.from, n), Math.max(range.to, n)];
			change({ step: from === to ? String(from) : `${from}-${to}` }, "push");
		} else change({ step: value }, "push");
	};
	return /* @__PURE__ */ a(Pick, {
		label: "Steps",
		value: loading ? "reading" : stepsLabel(steps, now),
		disabled: loading || !steps.length || inFile,
		class: "divided",
		tip: inFile ? LIVE : steps.length ? "[ and ] go to the previous and next step" : "no ProfilerStep in this recording",
		children: (close) => /* @__PURE__ */ a(List, {
			label: "Steps",
			value: now,
			marked: (v) => v === "" ? now === "" : !!range && Number(v) >= range.from && Number(v) <= range.to,
			options: [{
				value: "",
				text: "All steps",
				note: `${steps.length}`
			}, ...steps.map((s) => ({
				value: String(s.number),
				text: `Step ${s.number}`,
				note: `${human(s.duration_ns ?? null, "ns")}${s.complete === false ? ", incomplete" : ""}`
			}))],
			onPick: (value, { shift }) => {
				pick(value, shift);
				if (!shift) close();
			},
			foot: /* @__PURE__ */ a("div", {
				class: "none",
				children: "Shift-click selects a range."
			})
		})
	});
}
/** The step before or after the present one; from all steps to the first or last. */
function stepBy(by) {
	const steps = pages.peek().value?.steps ?? [];
	if (!steps.length) return;
	const range = parseSteps(view.peek().step);
	const at = range ? steps.findIndex((s) => s.number === range.from) : by > 0 ? -1 : steps.length;
	const next = steps[Math.max(0, Math.min(steps.length - 1, at + by))];
	if (next) change({ step: String(next.number) }, "push");
}
// src/state/fields.ts
/** The value a field has on the page before it is changed; the default "None" of an optional field is the empty text. */
function pageDefault(f) {
	const value = f.page ?? f.default ?? "";
	return value === "None" ? "" : f.type === "flag" ? value.toLowerCase() : value;
}
var isNamed = (f) => f.type === "text" || f.named === true;
/** Fields whose values are names inside another field's: they are cleared when that one changes. */
var WITHIN = {
	other_run: ["other_worker", "other_span"],
	other_worker: ["other_span"]
};
/** The query with a field set; the value it has anyway is left out. */
function withField(query, f, value) {
	const next = {
		...query,
		[f.name]: value
	};
	if (value === pageDefault(f)) delete next[f.name];
	for (const name of WITHIN[f.name] ?? []) delete next[name];
	return next;
}
/** The rows of a list in the address; none of what is no list of rows. */
function rowsOf(text) {
	try {
		const found = JSON.parse(text || "[]");
		if (!Array.isArray(found)) return [];
		return found.map((row) => Object.fromEntries(Object.entries(row ?? {}).filter(([, v]) => v !== null && typeof v !== "object").map(([k, v]) => [k, String(v)])));
	} catch {
		return [];
	}
}
/** One text for rows, numbers and switches as JSON has them; what a field has anyway is left out. */
function textOfRows(rows, fields) {
	if (!rows.length) return "";
	const typed = (f, v) => f?.type === "flag" ? v === "true" : f?.type === "number" && v.trim() && Number.isFinite(Number(v)) ? Number(v) : v;
	const of = new Map(fields.map((f) => [f.name, f]));
	return JSON.stringify(rows.map((row) => Object.fromEntries(Object.entries(row).filter(([k, v]) => v !== "" && !(of.has(k) && v === pageDefault(of.get(k)))).map(([k, v]) => [k, typed(of.get(k), v)]))));
}
/** A field with the values that the shown report lists for this recording, as a choice; null where there is nothing to choose. */
function fieldOfReport(f, now, asked) {
	const values = now?.values;
	if (!values?.length || f.type !== "text" && f.type !== "choice") return f;
	if (values.length === 1 && !asked) return null;
	const opens = f.type === "text" ? now?.value ?? "" : pageDefault(f);
	return {
		...f,
		type: "choice",
		choices: values,
		default: opens,
		page: opens,
		...f.type === "text" && { named: true }
	};
}
// src/ui/slider.tsx
/** The index of a value among rising values; for one that is none of them, where it would be. */
function placeOf(value, values) {
	const at = values.indexOf(value);
	if (at >= 0) return at;
	const above = values.findIndex((v) => Number(v) > Number(value));
	return above < 0 ? Math.max(0, values.length - 1) : above;
}
function Slider({ label, tip, value, values, chosen, wrong, onMove, onType }) {
	const at = placeOf(value, values);
	const last = Math.max(values.length - 1, 1);
	const [moved, setMoved] = d$2(null);
	const shown = moved !== null && values[moved] !== void 0 ? moved : at;
	return /* @__PURE__ */ a("div", {
		class: `slider ${chosen ? "chosen" : ""}`,
		"data-tip": tip,
		children: [
			/* @__PURE__ */ a("span", {
				class: "slider-label",
				children: label
			}),
			/* @__PURE__ */ a(Box, {
				label,
				value: moved !== null ? values[moved] ?? value : value,
				numeric: true,
				wrong: !!wrong,
				onType
			}),
			/* @__PURE__ */ a("input", {
				type: "range",
				min: 0,
				max: values.length - 1,
				step: 1,
				value: shown,
				disabled: values.length < 2,
				"aria-label": label,
				"aria-valuetext": values[shown] ?? value,
				style: { "--at": `${shown / last * 100}%` },
				onInput: (e) => {
					const to = Number(e.currentTarget.value);
					setMoved(to);
					if (values[to] !== void 0) onMove(values[to]);
				},
				onChange: () => setMoved(null),
				onBlur: () => setMoved(null)
			})
		]
	});
}
/** A small field: what is typed counts when Enter is pressed or the field is left; Esc takes it back. */
function Box({ label, value, placeholder, numeric, wrong, onType }) {
	const [text, setText] = d$2(null);
	const done = () => {
		if (text !== null && text.trim() !== value) onType(text.trim());
		setText(null);
	};
	return /* @__PURE__ */ a("input", {
		class: "typed box",
		type: "text",
		inputMode: numeric ? "decimal" : "text",
		"aria-label": label,
		"aria-invalid": wrong || void 0,
		value: text ?? value,
		placeholder,
		onInput: (e) => setText(e.currentTarget.value),
		onBlur: done,
		onKeyDown: (e) => {
			if (e.key === "Enter") done();
			if (e.key === "Escape") {
				e.stopPropagation();
				setText(null);
			}
		}
	});
}
// src/pages/fields.tsx
var COMMON = /* @__PURE__ */ new Set(["step", "device_limits"]);
/** The fields shown on the page: all but those of the selection bar. */
var ofPage = (fields) => (fields ?? []).filter((f) => !COMMON.has(f.name));
/** At most so many fields are shown in the head of a page; of more, the first that are chosen by a click, and the rest behind one button. */
var FIELDS = 3;
var FIRST_OF_MANY = 2;
function Fields({ fields }) {
	const first = fields.length <= FIELDS ? fields : fields.filter((f) => f.type === "choice" || f.type === "flag").slice(0, FIRST_OF_MANY);
	const rest = fields.filter((f) => !first.includes(f));
	const changed = rest.filter((f) => view.value.query[f.name] !== void 0);
	return /* @__PURE__ */ a("fieldset", {
		class: "fields",
		disabled: inFile,
		"data-tip": inFile ? LIVE : void 0,
		children: [
			first.map((f) => /* @__PURE__ */ a(FieldControl, { f }, f.name)),
			changed.map((f) => /* @__PURE__ */ a(Chip, {
				on: true,
				tip: f.doc ?? "",
				onToggle: () => setField(f, pageDefault(f)),
				children: [
					labelOf(f),
					": ",
					f.choices?.length && !isNamed(f) ? words(view.value.query[f.name]) : view.value.query[f.name]
				]
			}, f.name)),
			rest.length > 0 && /* @__PURE__ */ a(Popover, {
				label: "Options",
				class: "button",
				align: "right",
				wide: true,
				button: /* @__PURE__ */ a($, { children: ["Options", /* @__PURE__ */ a(Icon, {
					name: "down",
					size: 12
				})] }),
				children: () => /* @__PURE__ */ a("div", {
					class: "form options-form",
					children: rest.map((f) => /* @__PURE__ */ a("div", {
						class: "option-row",
						children: [/* @__PURE__ */ a(FieldControl, { f }), f.doc && /* @__PURE__ */ a("p", {
							class: "form-note",
							children: f.doc
						})]
					}, f.name))
				})
			})
		]
	});
}
var labelOf = (f) => (f.label && !Object.hasOwn(NAMES, f.name) ? f.label : words(f.name)).replace(/ us$/, ", µs").replace(/ ns$/, ", ns");
function setField(f, value, how = "push") {
	change({ query: withField(view.value.query, f, value) }, how);
}
var SWITCH = 7;
var LETTERS = 60;
/** First words that name one thing together with the second. */
var ONE_NAME = /* @__PURE__ */ new Set([
	"causal",
	"above",
	"forward",
	"step",
	"kernel",
	"exposed",
	"copied",
	"peak"
]);
/** Choices that are one name though their first word stands for itself elsewhere. */
var WHOLE = /* @__PURE__ */ new Map([
	["device_busy", "Device busy"],
	["host_time", "Host time"],
	["cuda_graph", "CUDA graph"]
]);
var NAMES = {
	op: "operator",
	flop: "FLOP",
	dtype: "type",
	all: "all"
};
/** A choice as a person reads it: `op_shape` is "Operator, shape", `total_ns` is "Total". */
function words(text) {
	if (WHOLE.has(text)) return WHOLE.get(text);
	const parts = text.replace(/_(ns|bytes)$/, "").split("_").map((w) => NAMES[w] ?? w);
	if (parts.length === 1 && /\d/.test(text)) return text;
	const joined = parts.join(parts.length === 2 && !ONE_NAME.has(parts[0]) ? ", " : " ");
	return (joined[0]?.toUpperCase() ?? "") + joined.slice(1);
}
function FieldControl({ f }) {
	const now = view.value.query[f.name] ?? pageDefault(f);
	const label = labelOf(f);
	const set = (value, how = "push") => setField(f, value, how);
	const free = f.type === "text";
	const opens = f.choices?.includes("") === true;
	const shown = (choice) => isNamed(f) ? choice : words(choice);
	if (f.type === "flag") {
		const on = /^(true|1|yes|on)$/i.test(now);
		return /* @__PURE__ */ a(Chip, {
			on,
			tip: f.doc ?? "",
			onToggle: () => set(on ? "false" : "true"),
			children: label
		});
	}
	const letters = (f.choices ?? []).reduce((sum, c) => sum + shown(c).length, 0);
	if (f.choices?.length && f.choices.length <= SWITCH && f.type !== "text" && (!isNamed(f) || letters <= LETTERS)) return /* @__PURE__ */ a("div", {
		class: "field",
		children: [/* @__PURE__ */ a("span", {
			class: "field-label",
			children: label
		}), /* @__PURE__ */ a(Switch, {
			label,
			tip: f.doc ?? "",
			value: now,
			onPick: set,
			choices: f.choices.map((c) => ({
				value: c,
				text: c ? shown(c) : "Any"
			}))
		})]
	});
	if (f.choices?.length) return /* @__PURE__ */ a("div", {
		class: "field",
		children: [/* @__PURE__ */ a("span", {
			class: "field-label",
			children: label
		}), /* @__PURE__ */ a(Popover, {
			label: `${label}: ${now || "any"}`,
			class: "button",
			tip: f.doc ?? "",
			button: /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("span", {
				class: "ellipsis field-value",
				children: now ? shown(now) : free ? opens ? "Default" : "Choose" : "Any"
			}), /* @__PURE__ */ a(Icon, {
				name: "down",
				size: 12
			})] }),
			children: (close) => {
				const pick = (v) => {
					set(v, "push");
					close();
				};
				return /* @__PURE__ */ a(List, {
					label,
					value: now,
					options: [...free && now && !opens ? [{
						value: "",
						text: "None"
					}] : [], ...f.choices.map((c) => ({
						value: c,
						text: c ? shown(c) : free ? "Default" : "Any"
					}))],
					onPick: pick,
					...free && { free: {
						ask: `Search or type`,
						take: pick
					} }
				});
			}
		})]
	});
	return /* @__PURE__ */ a(Typed, {
		f,
		label,
		now,
		set
	});
}
/** A text field: its value applies when Enter is pressed or the field is left. */
function Typed({ f, label, now, set }) {
	const [text, setText] = d$2(null);
	const done = () => {
		if (text !== null && text !== now) set(text.trim());
		setText(null);
	};
	return /* @__PURE__ */ a("label", {
		class: "field",
		"data-tip": f.doc,
		children: [/* @__PURE__ */ a("span", {
			class: "field-label",
			children: label
		}), /* @__PURE__ */ a("input", {
			class: "typed",
			type: "text",
			inputMode: f.type === "number" ? "decimal" : "text",
			value: text ?? now,
			placeholder: pageDefault(f) || "any",
			size: f.type === "number" ? 7 : 14,
			onInput: (e) => setText(e.currentTarget.value),
			onBlur: done,
			onKeyDown: (e) => {
				if (e.key === "Enter") done();
				if (e.key === "Escape") setText(null);
			}
		})]
	});
}
// src/pages/tabs.tsx
/** Title of the first tab: the analysis that the others are views of. */
var FIRST = "Summary";
/** Whether the present page has a bar of tabs, which shows its title. A report that stands alone has no other views. */
var hasTabs = () => !alone && familyOf(catalog.value, page.value).length > 1;
function Family() {
	const tabs = familyOf(catalog.value, page.value);
	const bar = T$1(null);
	A$1(() => {
		const [all, now] = [bar.current, bar.current?.querySelector("[aria-current]")];
		if (all && now) all.scrollLeft = Math.max(0, now.offsetLeft - (all.clientWidth - now.offsetWidth) / 2);
	}, [page.value, tabs.length > 1]);
	if (!hasTabs()) return null;
	const head = tabs[0];
	const label = (a) => a === head ? FIRST : a.title;
	const move = (event) => {
		const links = [...event.currentTarget.querySelectorAll("a")];
		const at = links.indexOf(document.activeElement);
		const to = {
			ArrowRight: at + 1,
			ArrowLeft: at - 1,
			Home: 0,
			End: links.length - 1
		}[event.key];
		if (to === void 0 || at < 0) return;
		event.preventDefault();
		event.stopPropagation();
		links[(to + links.length) % links.length].focus();
	};
	return /* @__PURE__ */ a("div", {
		class: "family",
		children: [/* @__PURE__ */ a("h1", { children: [head.title, page.value !== head.name && /* @__PURE__ */ a("span", {
			class: "sr",
			children: [": ", label(tabs.find((a) => a.name === page.value))]
		})] }), /* @__PURE__ */ a("nav", {
			class: "tabs",
			"aria-label": `Views of ${head.title}`,
			onKeyDown: move,
			children: /* @__PURE__ */ a("div", {
				class: "tabs-row",
				ref: bar,
				children: tabs.map((a$6) => {
					const [on, off] = [a$6.name === page.value, a$6.available === false];
					return /* @__PURE__ */ a(ViewLink, {
						view: pageView(a$6.name),
						class: `tab ${on ? "on" : ""} ${off ? "off" : ""}`,
						tip: (off ? a$6.because : a$6.question) ?? "",
						label: off ? `${label(a$6)}, not available: ${a$6.because ?? ""}` : label(a$6),
						current: on,
						stop: !on,
						children: [label(a$6), off && head.available !== false && /* @__PURE__ */ a("span", {
							class: "tab-reason",
							children: shortReason(a$6.because)
						})]
					}, a$6.name);
				})
			})
		})]
	});
}
// src/pages/report.tsx
var equationOf = (r) => r.sections.find((s) => s.kind === "facts" && s.style === "equation");
function ReportPage({ r, waiting }) {
	const lead = r.headline ?? "";
	const equation = equationOf(r);
	const fields = ofPage(info.value?.fields).flatMap((f) => fieldOfReport(f, r.fields?.[f.name], view.value.query[f.name] !== void 0) ?? []);
	const inEquation = equation?.kind === "facts" && !equation.text;
	return /* @__PURE__ */ a("div", {
		class: `page ${waiting ? "waiting" : ""}`,
		"aria-busy": waiting,
		children: [/* @__PURE__ */ a("div", {
			class: `page-head ${equation && !fields.length ? "hidden-head" : ""}`,
			children: [/* @__PURE__ */ a("div", { children: [!hasTabs() && /* @__PURE__ */ a("h1", {
				class: equation ? "sr" : "",
				children: r.title
			}), lead && !inEquation && /* @__PURE__ */ a("p", {
				class: "headline",
				children: /* @__PURE__ */ a(Text, { text: lead })
			})] }), fields.length > 0 && /* @__PURE__ */ a(Fields, { fields })]
		}), /* @__PURE__ */ a(ReportBody, {
			r,
			lead: inEquation ? lead : ""
		})]
	});
}
/** All of a report below the head of its page. */
function ReportBody({ r, lead }) {
	return /* @__PURE__ */ a($, { children: [
		stale.value && /* @__PURE__ */ a(StaleNotice, {}),
		r.notices?.map((n) => /* @__PURE__ */ a(Notice, { notice: n })),
		/* @__PURE__ */ a(PageFilters, { r }),
		/* @__PURE__ */ a("div", {
			class: "grid",
			children: rowsOf$2(r.sections).map((row) => row.length === 1 && !isCard(row[0]) ? /* @__PURE__ */ a(SectionCard, {
				section: row[0],
				report: r,
				lead
			}, row[0].id) : /* @__PURE__ */ a("div", {
				class: "cards",
				style: { maxWidth: row.length < 3 ? `${row.length * 400}px` : void 0 },
				children: row.map((s) => /* @__PURE__ */ a(SectionCard, {
					section: s,
					report: r,
					lead: ""
				}, s.id))
			}, row[0].id))
		}),
		!r.sections.length && !r.headline && /* @__PURE__ */ a("div", {
			class: "card pad",
			children: /* @__PURE__ */ a("p", {
				class: "prose",
				children: "This report has no sections."
			})
		})
	] });
}
var StaleNotice = () => /* @__PURE__ */ a(Notice, {
	notice: {
		level: "warn",
		text: "The file changed since this page was read. It still shows the recording as it was."
	},
	children: /* @__PURE__ */ a("button", {
		type: "button",
		class: "link",
		onClick: () => {
			stamp.value = "";
			readAgain();
		},
		children: "Read again"
	})
});
// src/pages/code.tsx
var WORDS = /\b(import|with|as|for|in|from|def|return)\b|(#.*$)/gm;
/** Python with keywords and comments in quiet ink and `mark` in accent. */
function Snippet({ code, mark }) {
	const at = mark ? code.indexOf(mark) : -1;
	return /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("pre", {
		class: "snippet",
		children: /* @__PURE__ */ a("code", { children: (at < 0 ? [[code, false]] : [
			[code.slice(0, at), false],
			[mark, true],
			[code.slice(at + mark.length), false]
		]).map(([text, on]) => on ? /* @__PURE__ */ a("span", {
			class: "mark-code",
			children: text
		}) : quieted(text)) })
	}), /* @__PURE__ */ a("div", {
		class: "buttons",
		children: /* @__PURE__ */ a(Copy, {
			class: "button primary",
			what: "the snippet",
			text: () => code,
			children: "Copy snippet"
		})
	})] });
}
function quieted(text) {
	const out = [];
	let at = 0;
	for (const m of text.matchAll(WORDS)) {
		out.push(text.slice(at, m.index), /* @__PURE__ */ a("span", {
			class: "word-code",
			children: m[0]
		}));
		at = m.index + m[0].length;
	}
	out.push(text.slice(at));
	return out;
}
var recordSnippet = (logdir) => {
	const mark = `tp.tensorboard_trace_handler(${JSON.stringify(logdir)})`;
	return {
		mark,
		code: `import torch.profiler as tp

with tp.profile(
    schedule=tp.schedule(wait=5, warmup=2, active=3),
    on_trace_ready=${mark},
    record_shapes=True, with_stack=True,
) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()`
	};
};
/** The whole job instead of a few steps: every iteration timed, the work of the sampled ones counted. */
var captureSnippet = (logdir, mark = `sol.capture(${JSON.stringify(logdir)}, model=model)`) => ({
	mark,
	code: `import tb_sol_plugin as sol

with ${mark} as tracker:
    for batch in loader:
        train_step(batch)
        tracker.step()`
});
var CALL = `with torch.profiler.profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    on_trace_ready=tensorboard_trace_handler(logdir),
) as prof: ...`;
/** A call of `sol.capture` with the missing argument; null where it has no such argument. */
function ofCapture(argument) {
	const plain = captureSnippet("");
	const whole = (extra) => ({
		code: captureSnippet("", `sol.capture(logdir, model=model${extra})`).code,
		mark: extra.replace(/^, /, "")
	});
	if (argument === "profile=True") return whole(", profile=True");
	if (argument === "every_n_steps") return whole(", every_n_steps=100");
	if (argument === "model=model") return {
		...whole(""),
		mark: argument
	};
	return plain.code.includes(argument) ? {
		code: captureSnippet("", "sol.capture(logdir, model=model)").code,
		mark: argument
	} : null;
}
/**
* A profiler call with the missing argument in its place; one that is no keyword argument is marked where the call has it.
* capture: the recording is a SOL capture, and the argument may be one of `sol.capture`.
*/
function argumentSnippet(argument, capture = false) {
	const ofSol = capture ? ofCapture(argument) : null;
	if (ofSol) return ofSol;
	if (argument.startsWith("sol.capture(")) return captureSnippet("", argument);
	if (CALL.includes(argument)) return {
		code: CALL,
		mark: argument
	};
	const mark = /^[A-Za-z_]\w*$/.test(argument) ? `${argument}=True` : argument;
	if (!/^[A-Za-z_]\w*\s*=/.test(mark)) return null;
	const keyword = /^\w+/.exec(mark)[0];
	const there = CALL.split("\n").find((line) => line.trim().startsWith(`${keyword}=`));
	if (there) return {
		code: CALL.replace(there, () => `    ${mark},`),
		mark
	};
	return {
		code: CALL.replace("    on_trace", `    ${mark},\n    on_trace`),
		mark
	};
}
// src/pages/states.tsx
var sentence = (text) => (text[0]?.toUpperCase() ?? "") + text.slice(1);
var ms = (value) => human((value ?? 0) * 1e6, "ns");
var plural = (n, word) => `${number(n, 0)} ${n === 1 ? word : word.endsWith("y") ? word.slice(0, -1) + "ies" : word + "s"}`;
/** Shows its children after a delay, so that quick answers do not flicker. */
function Delayed({ delay = 150, children }) {
	const [on, setOn] = d$2(false);
	A$1(() => {
		const timer = window.setTimeout(() => setOn(true), delay);
		return () => window.clearTimeout(timer);
	}, []);
	return on ? /* @__PURE__ */ a($, { children }) : null;
}
var KINDS = [
	["*.pt.trace.json, .gz", "PyTorch profiler"],
	["any .json with traceEvents", "found by content"],
	["*.sol.jsonl, .gz", "SOL capture"],
	["memory snapshots", "with or without a trace"]
];
function Empty({ runs }) {
	const { scan, rejected = [] } = runs;
	const roots = scan.roots ?? [];
	const trace = recordSnippet(roots[0] ?? "runs/my-run");
	const capture = captureSnippet(roots[0] ?? "runs/my-run");
	const scanning = scan.state === "scanning";
	const lines = rejected.map((r) => [
		r.file,
		r.size ? human(r.size, "B") : "",
		r.what ?? "",
		r.note ?? ""
	].join("	")).join("\n");
	return /* @__PURE__ */ a("div", {
		class: "state",
		children: [/* @__PURE__ */ a("div", {
			class: "card split-card",
			children: [/* @__PURE__ */ a("div", {
				class: "split-main",
				children: [
					/* @__PURE__ */ a("h1", { children: scanning ? "Looking for recordings" : "No recording in this logdir yet" }),
					/* @__PURE__ */ a("p", {
						class: "prose",
						children: scanning ? `Scanned ${plural(scan.files ?? 0, "file")} in ${plural(scan.directories ?? 0, "directory")} so far.` : `Scanned ${plural(scan.files ?? 0, "file")} in ${plural(scan.directories ?? 0, "directory")} in ${ms(scan.elapsed_ms)} and found no profiler trace and no SOL capture. New files appear here on their own.`
					}),
					(runs.notes ?? []).map((text) => /* @__PURE__ */ a(Notice, { notice: {
						level: "info",
						text
					} })),
					scan.stopped && /* @__PURE__ */ a(Notice, { notice: {
						level: "warn",
						text: `The scan stopped early: ${scan.stopped}`
					} }),
					(scan.errors ?? []).map((e) => /* @__PURE__ */ a(Notice, { notice: {
						level: "error",
						text: typeof e === "string" ? e : [e.message, e.hint].filter(Boolean).join(" ")
					} })),
					/* @__PURE__ */ a("div", {
						class: "ways",
						children: [/* @__PURE__ */ a("div", { children: [
							/* @__PURE__ */ a("h2", { children: "Record a few steps with the profiler" }),
							/* @__PURE__ */ a("p", {
								class: "form-note",
								children: "Every operator and kernel of a few steps, with its time."
							}),
							/* @__PURE__ */ a(Snippet, {
								code: trace.code,
								mark: trace.mark
							})
						] }), /* @__PURE__ */ a("div", { children: [
							/* @__PURE__ */ a("h2", { children: "Or record the whole job with a SOL capture" }),
							/* @__PURE__ */ a("p", {
								class: "form-note",
								children: "The time of every iteration, and the work of one in a hundred. Cheap enough to leave on; one run may have both."
							}),
							/* @__PURE__ */ a(Snippet, {
								code: capture.code,
								mark: capture.mark
							})
						] })]
					})
				]
			}), /* @__PURE__ */ a("div", {
				class: "split-side",
				children: [
					/* @__PURE__ */ a(PagesWithoutRecording, {}),
					/* @__PURE__ */ a("h2", { children: "What counts as a recording" }),
					/* @__PURE__ */ a("ul", {
						class: "side-list",
						children: KINDS.map(([what, note]) => /* @__PURE__ */ a("li", { children: [
							/* @__PURE__ */ a(Icon, { name: "file" }),
							/* @__PURE__ */ a("span", { children: what }),
							/* @__PURE__ */ a("span", {
								class: "note",
								children: note
							})
						] }))
					}),
					/* @__PURE__ */ a("h2", { children: "Scanned folders" }),
					/* @__PURE__ */ a("ul", {
						class: "side-list",
						children: roots.map((root) => /* @__PURE__ */ a("li", { children: [
							/* @__PURE__ */ a(Icon, { name: "folder" }),
							/* @__PURE__ */ a("span", {
								class: "mono",
								children: /* @__PURE__ */ a(Middle, { text: root })
							}),
							roots.length === 1 && /* @__PURE__ */ a("span", {
								class: "note",
								children: [
									plural(scan.files ?? 0, "file"),
									", ",
									plural(scan.directories ?? 0, "directory")
								]
							})
						] }))
					}),
					/* @__PURE__ */ a("button", {
						type: "button",
						class: "button",
						onClick: () => void rescan(),
						children: [/* @__PURE__ */ a(Icon, { name: "again" }), "Scan again"]
					})
				]
			})]
		}), rejected.length > 0 && /* @__PURE__ */ a("div", {
			class: "card table-card",
			children: [
				/* @__PURE__ */ a("div", {
					class: "card-head",
					children: [/* @__PURE__ */ a("div", {
						class: "card-title",
						children: [/* @__PURE__ */ a("h2", { children: "Files that are no recording" }), /* @__PURE__ */ a("span", {
							class: "subtitle",
							children: [
								rejected.length,
								" of ",
								plural(scan.files ?? rejected.length, "file")
							]
						})]
					}), /* @__PURE__ */ a("div", {
						class: "card-tools",
						children: /* @__PURE__ */ a(Copy, {
							class: "text-button accent",
							what: "the list",
							text: () => lines,
							children: "Copy as text"
						})
					})]
				}),
				/* @__PURE__ */ a("div", {
					class: "table-scroll",
					children: /* @__PURE__ */ a("table", {
						class: "table plain",
						children: [/* @__PURE__ */ a("thead", { children: /* @__PURE__ */ a("tr", { children: [
							/* @__PURE__ */ a("th", {
								scope: "col",
								children: "File"
							}),
							/* @__PURE__ */ a("th", {
								scope: "col",
								class: "right",
								children: "Size"
							}),
							/* @__PURE__ */ a("th", {
								scope: "col",
								children: "What it is"
							}),
							/* @__PURE__ */ a("th", { scope: "col" })
						] }) }), /* @__PURE__ */ a("tbody", { children: rejected.slice(0, 300).map((r) => /* @__PURE__ */ a("tr", { children: [
							/* @__PURE__ */ a("td", { children: /* @__PURE__ */ a("span", {
								class: "symbol",
								children: [/* @__PURE__ */ a(Icon, {
									name: "file",
									size: 14
								}), /* @__PURE__ */ a("span", {
									class: "mono",
									children: /* @__PURE__ */ a(Middle, { text: r.file })
								})]
							}) }),
							/* @__PURE__ */ a("td", {
								class: "right",
								children: typeof r.size === "number" ? human(r.size, "B") : "—"
							}),
							/* @__PURE__ */ a("td", { children: r.what }),
							/* @__PURE__ */ a("td", {
								class: "quiet",
								children: r.note
							})
						] })) })]
					})
				}),
				rejected.length > 300 && /* @__PURE__ */ a("div", {
					class: "table-foot",
					children: [rejected.length - 300, " more"]
				})
			]
		})]
	});
}
/** Links to the pages that need no recording. */
function PagesWithoutRecording() {
	const pages = catalog.value.filter((a) => a.alone);
	if (!pages.length) return null;
	return /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("h2", { children: "Without a recording" }), /* @__PURE__ */ a("ul", {
		class: "side-list wrapped",
		children: pages.map((a$4) => /* @__PURE__ */ a("li", { children: [
			/* @__PURE__ */ a(Icon, { name: a$4.icon ?? a$4.name }),
			/* @__PURE__ */ a(ViewLink, {
				view: pageView(a$4.name),
				class: "link",
				children: a$4.title
			}),
			/* @__PURE__ */ a("span", {
				class: "note",
				children: a$4.question
			})
		] }))
	})] });
}
var STATE = {
	new: "not read yet",
	queued: "queued",
	loading: "reading",
	ready: "ready",
	error: "failed"
};
function Loading({ progress, since }) {
	const c = chosen$3.value;
	const p = progress ?? {};
	const seconds = p.elapsed_s ?? (performance.now() - since) / 1e3;
	const rate = p.bytes && seconds > .3 ? p.bytes / seconds : 0;
	const left = rate && p.total && p.bytes && p.bytes < p.total ? (p.total - p.bytes) / rate : null;
	const share = p.total ? Math.min(1, (p.bytes ?? 0) / p.total) : 0;
	const files = p.of ? [] : (c?.run.workers ?? []).flatMap((w) => w.spans.map((s) => ({
		w,
		s
	}))).filter(({ s, w }) => w === c?.worker && s === c.span || s.state === "loading" || s.state === "queued" || s.state === "error").slice(0, 12);
	const bits = [
		p.total ? `${human(p.bytes ?? 0, "B")} of ${human(p.total, "B")}` : "",
		rate ? human(rate, "B/s") : "",
		left !== null ? `about ${Math.max(1, Math.round(left))} s left` : "",
		p.events ? `${number(p.events, 0)} events` : "",
		p.queue_position ? `place ${p.queue_position} in the queue` : ""
	].filter(Boolean);
	return /* @__PURE__ */ a("div", {
		class: "loading",
		children: [/* @__PURE__ */ a("div", {
			class: "card",
			role: "status",
			"aria-live": "polite",
			children: [
				/* @__PURE__ */ a("div", {
					class: "loading-head",
					children: [
						/* @__PURE__ */ a("h1", { children: ["Reading ", p.of ? `the baseline ${p.of}` : c ? c.run.name : "the recording"] }),
						/* @__PURE__ */ a("span", {
							class: "quiet",
							children: [
								bits.join(", "),
								bits.length ? ". " : "",
								"The first open is slow, the next takes under a second."
							]
						}),
						/* @__PURE__ */ a("button", {
							type: "button",
							class: "button",
							onClick: () => void cancel(),
							children: "Cancel"
						})
					]
				}),
				/* @__PURE__ */ a("div", {
					class: "progress",
					role: "progressbar",
					"aria-valuemin": 0,
					"aria-valuemax": 100,
					"aria-valuenow": Math.round(share * 100),
					"aria-label": "Bytes read",
					children: /* @__PURE__ */ a("span", { style: { width: `${share * 100}%` } })
				}),
				/* @__PURE__ */ a("ul", {
					class: "files",
					children: files.map(({ w, s }) => /* @__PURE__ */ a(FileLine, {
						w,
						s,
						share: w === c?.worker && s === c?.span ? share : s.state === "ready" ? 1 : 0,
						stage: w === c?.worker && s === c?.span ? p.stage : void 0
					}))
				})
			]
		}), /* @__PURE__ */ a(Skeleton, {})]
	});
}
function FileLine({ w, s, share, stage }) {
	const bad = s.state === "error";
	return /* @__PURE__ */ a("li", {
		class: bad ? "bad" : s.state === "ready" ? "done" : "",
		children: [
			/* @__PURE__ */ a("span", {
				class: "mono",
				children: /* @__PURE__ */ a(Middle, {
					text: w.name,
					tip: s.file ?? s.name
				})
			}),
			/* @__PURE__ */ a("span", {
				class: "progress small",
				children: /* @__PURE__ */ a("span", { style: { width: `${share * 100}%` } })
			}),
			/* @__PURE__ */ a("span", {
				class: "file-size",
				children: s.size ? human(s.size, "B") : ""
			}),
			/* @__PURE__ */ a("span", {
				class: "quiet",
				children: bad ? s.error?.message : stage || STATE[s.state ?? "new"]
			})
		]
	});
}
/** In a page that was saved as a file: what is not in it, and the same page as it is there. */
function NotInFile({ error }) {
	const there = info.value?.available !== false;
	return /* @__PURE__ */ a("div", {
		class: "page",
		children: [!hasTabs() && /* @__PURE__ */ a("div", {
			class: "page-head",
			children: /* @__PURE__ */ a("h1", { children: info.value?.title })
		}), /* @__PURE__ */ a("div", {
			class: "state",
			children: /* @__PURE__ */ a("div", {
				class: "card",
				children: [
					/* @__PURE__ */ a("h2", { children: there ? error.body.message : "This page is not in this file." }),
					/* @__PURE__ */ a("p", {
						class: "prose",
						children: error.body.hint
					}),
					there && /* @__PURE__ */ a(ViewLink, {
						view: pageView(view.value.page),
						class: "link",
						children: "Show the page as it is in this file"
					})
				]
			})
		})]
	});
}
function NotAvailable({ r }) {
	const argument = r.argument || /`([^`]+)`/.exec(r.record_it_with)?.[1] || "";
	const recorded = chosen$3.value?.span.kind === "sol_capture" && !!chosen$3.value.span.companion;
	const snippet = argument && !(recorded && argument === "profile=True") ? argumentSnippet(argument, chosen$3.value?.span.kind === "sol_capture") : null;
	const can = entriesOf(catalog.value).filter((a) => a.available !== false && a.name !== r.analysis && a.group !== "foot");
	return /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("div", {
		class: "page-head",
		children: [/* @__PURE__ */ a("div", { children: [!hasTabs() && /* @__PURE__ */ a("h1", { children: r.title }), /* @__PURE__ */ a("p", {
			class: "headline",
			children: r.fields ? "Not available for this choice." : "Not available for this recording."
		})] }), r.fields && /* @__PURE__ */ a(Chosen, { r })]
	}), /* @__PURE__ */ a("div", {
		class: "state",
		children: /* @__PURE__ */ a("div", {
			class: "card split-card",
			children: [/* @__PURE__ */ a("div", {
				class: "split-main",
				children: [
					/* @__PURE__ */ a("h2", {
						class: "large",
						children: /* @__PURE__ */ a(Text, { text: sentence(r.because) })
					}),
					r.record_it_with && /* @__PURE__ */ a("p", {
						class: "prose",
						children: /* @__PURE__ */ a(Text, { text: sentence(r.record_it_with) })
					}),
					/* @__PURE__ */ a("p", {
						class: "prose",
						children: "No estimate is shown instead."
					}),
					snippet && /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("h2", { children: "Record the next run with" }), /* @__PURE__ */ a(Snippet, {
						code: snippet.code,
						mark: snippet.mark
					})] })
				]
			}), /* @__PURE__ */ a("div", {
				class: "split-side",
				children: [
					/* @__PURE__ */ a(OtherRecording, {}),
					!!can.length && /* @__PURE__ */ a("h2", { children: "Pages that this recording has data for" }),
					/* @__PURE__ */ a("ul", {
						class: "side-list wrapped",
						children: can.map((a$5) => /* @__PURE__ */ a("li", { children: [
							/* @__PURE__ */ a(Icon, { name: a$5.icon ?? a$5.name }),
							/* @__PURE__ */ a(ViewLink, {
								view: pageView(a$5.name),
								class: "link",
								children: a$5.title
							}),
							/* @__PURE__ */ a("span", {
								class: "note",
								children: a$5.question
							})
						] }))
					}),
					/* @__PURE__ */ a(RunsWithPage, { name: r.analysis })
				]
			})]
		})
	})] });
}
/** The fields whose values led to a page without data, to choose others. */
function Chosen({ r }) {
	const asked = view.value.query;
	return /* @__PURE__ */ a(Fields, { fields: ofPage(info.value?.fields).filter((f) => r.fields?.[f.name]).flatMap((f) => fieldOfReport(f, r.fields?.[f.name], asked[f.name] !== void 0) ?? []) });
}
/** The same page of the other recording of this worker. */
function OtherRecording() {
	const other = chosen$3.value?.span.companion;
	if (!other) return null;
	const memory = isMemoryOnly(chosen$3.value.span);
	const trace = chosen$3.value?.span.kind === "sol_capture";
	return /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("h2", { children: "Other recording of this worker" }), /* @__PURE__ */ a("ul", {
		class: "side-list",
		children: /* @__PURE__ */ a("li", { children: [
			/* @__PURE__ */ a(Icon, { name: "file" }),
			/* @__PURE__ */ a(ViewLink, {
				view: {
					...view.value,
					worker: other.worker,
					span: other.span,
					step: "",
					query: {},
					tables: {},
					figures: {}
				},
				class: "link",
				children: memory ? "This page of the recording that also shows this memory" : trace ? "This page of the profiler trace" : "This page of the SOL capture"
			}),
			/* @__PURE__ */ a("span", {
				class: "note",
				children: other.span
			})
		] })
	})] });
}
/** Other runs that have been read and have data for this page. */
function RunsWithPage({ name }) {
	const [found, setFound] = d$2([]);
	A$1(() => {
		let live = true;
		runsWith(name).then((others) => {
			if (live) setFound(others);
		});
		return () => {
			live = false;
		};
	}, [name]);
	if (!found.length) return null;
	return /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("h2", { children: "Runs that have data for this page" }), /* @__PURE__ */ a("ul", {
		class: "side-list",
		children: found.map((w) => /* @__PURE__ */ a("li", { children: [
			/* @__PURE__ */ a(Icon, { name: "folder" }),
			/* @__PURE__ */ a(ViewLink, {
				view: {
					...pageView(name),
					run: w.run,
					worker: w.worker ?? "",
					span: w.span ?? "",
					step: "",
					capture: ""
				},
				class: "link",
				children: w.run || "."
			}),
			/* @__PURE__ */ a("span", {
				class: "note",
				children: w.worker
			})
		] }))
	})] });
}
function NotFound({ absent }) {
	const to = (name) => ({
		...view.value,
		...absent.what === "run" ? {
			run: name,
			worker: "",
			span: "",
			step: "",
			capture: ""
		} : absent.what === "worker" ? {
			worker: name,
			span: "",
			step: ""
		} : { span: name }
	});
	return /* @__PURE__ */ a("div", {
		class: "state",
		children: /* @__PURE__ */ a("div", {
			class: "card pad",
			children: [
				/* @__PURE__ */ a("h1", { children: "Not found here" }),
				/* @__PURE__ */ a("p", {
					class: "prose",
					children: [
						"This link shows the ",
						absent.what,
						" ",
						/* @__PURE__ */ a("code", { children: absent.name }),
						absent.within && /* @__PURE__ */ a($, { children: [" of ", /* @__PURE__ */ a("code", { children: absent.within })] }),
						", and this logdir has none of that name. No other one is shown instead."
					]
				}),
				/* @__PURE__ */ a("h2", { children: absent.near.length ? "Similar names" : `There is no ${absent.what} here yet` }),
				/* @__PURE__ */ a("ul", {
					class: "side-list",
					children: absent.near.map((name) => /* @__PURE__ */ a("li", { children: [/* @__PURE__ */ a(Icon, { name: "folder" }), /* @__PURE__ */ a(ViewLink, {
						view: to(name),
						class: "link",
						children: /* @__PURE__ */ a("span", {
							class: "mono",
							children: name || "."
						})
					})] }))
				}),
				/* @__PURE__ */ a("div", {
					class: "buttons",
					children: [/* @__PURE__ */ a("button", {
						type: "button",
						class: "button",
						onClick: () => void rescan(),
						children: [/* @__PURE__ */ a(Icon, { name: "again" }), "Scan again"]
					}), /* @__PURE__ */ a(ViewLink, {
						view: emptyView(),
						class: "button",
						children: "Start from the first run"
					})]
				})
			]
		})
	});
}
function Failed({ error, what, retry }) {
	const { code, message, hint, file, field } = error.body;
	const details = [
		`${what}: ${message}`,
		hint,
		file && `file: ${file}`,
		field && `field: ${field}`,
		`code: ${code}, status ${error.status}`
	].filter(Boolean).join("\n");
	return /* @__PURE__ */ a("div", {
		class: "state",
		children: [/* @__PURE__ */ a("div", {
			class: "card pad failed",
			role: "alert",
			children: [
				/* @__PURE__ */ a("h1", { children: [/* @__PURE__ */ a(Icon, { name: "error" }), what] }),
				/* @__PURE__ */ a("p", {
					class: "prose",
					children: /* @__PURE__ */ a(Text, { text: sentence(message) })
				}),
				hint && /* @__PURE__ */ a("p", {
					class: "prose",
					children: /* @__PURE__ */ a(Text, { text: sentence(hint) })
				}),
				file && /* @__PURE__ */ a("p", {
					class: "prose quiet",
					children: ["File ", /* @__PURE__ */ a("code", { children: file })]
				}),
				/* @__PURE__ */ a("div", {
					class: "buttons",
					children: [/* @__PURE__ */ a("button", {
						type: "button",
						class: "button primary",
						onClick: retry,
						children: "Try again"
					}), /* @__PURE__ */ a(Copy, {
						what: "the details",
						text: () => details,
						children: "Copy details"
					})]
				})
			]
		}), pages.value.state === "ready" && /* @__PURE__ */ a("p", {
			class: "quiet center",
			children: "Other pages are not touched by this."
		})]
	});
}
/** In place of a page whose analysis the server could not load. */
function NotLoaded({ failure: { name, reason } }) {
	return /* @__PURE__ */ a("div", {
		class: "state",
		children: [/* @__PURE__ */ a("div", {
			class: "card pad failed",
			role: "alert",
			children: [
				/* @__PURE__ */ a("h1", { children: [
					/* @__PURE__ */ a(Icon, { name: "error" }),
					"Analysis \"",
					name,
					"\" failed to load"
				] }),
				/* @__PURE__ */ a("p", {
					class: "prose",
					children: /* @__PURE__ */ a("code", { children: reason })
				}),
				/* @__PURE__ */ a("p", {
					class: "prose",
					children: /* @__PURE__ */ a(Text, { text: REMEDY })
				}),
				/* @__PURE__ */ a("div", {
					class: "buttons",
					children: /* @__PURE__ */ a(Copy, {
						what: "the error",
						text: () => `${name}: ${reason}`,
						children: "Copy error"
					})
				})
			]
		}), /* @__PURE__ */ a("p", {
			class: "quiet center",
			children: "The other pages work."
		})]
	});
}
// src/pages/editor.tsx
function EditedPage({ info, got }) {
	const value = got.value?.analysis === info.name ? got.value : null;
	if (value && !value.available) return /* @__PURE__ */ a(NotAvailable, { r: value });
	const fields = ofPage(info.fields);
	const [waiting, failed] = [got.state !== "ready", got.state === "error" ? got.error : null];
	const others = fields.filter((f) => !f.group);
	const fieldsNow = lastFields.value.page === info.name ? lastFields.value.fields : null;
	return /* @__PURE__ */ a("div", {
		class: `page edited ${waiting ? "waiting" : ""}`,
		"aria-busy": waiting && !failed,
		children: [
			/* @__PURE__ */ a("div", {
				class: "page-head",
				children: [/* @__PURE__ */ a("div", { children: [!hasTabs() && /* @__PURE__ */ a("h1", { children: info.title }), !failed && value?.headline && /* @__PURE__ */ a("p", {
					class: "headline",
					role: "status",
					children: /* @__PURE__ */ a(Text, { text: value.headline })
				})] }), others.length > 0 && /* @__PURE__ */ a(Fields, { fields: others })]
			}),
			(fieldsNow || failed) && /* @__PURE__ */ a(Editor, {
				fields: fields.filter((f) => f.group),
				now: fieldsNow ?? {},
				wrong: failed?.body.field ?? ""
			}),
			failed && /* @__PURE__ */ a(Notice, {
				notice: {
					level: "error",
					text: sentences(failed.body.message, failed.body.hint)
				},
				children: failed.body.code !== "bad_query" && /* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button",
					onClick: readAgain,
					children: "Try again"
				})
			}),
			!failed && (value ? /* @__PURE__ */ a(ReportBody, {
				r: value,
				lead: ""
			}) : /* @__PURE__ */ a(Delayed, { children: /* @__PURE__ */ a(Skeleton, {}) }))
		]
	});
}
/** The card of fields. A report that failed lists no values, so those of the last one are used. */
function Editor({ fields, now, wrong }) {
	const groups = [...new Set(fields.map((f) => f.group))];
	const lists = fields.filter((f) => f.type === "rows");
	const set = fields.filter((f) => view.value.query[f.name] !== void 0);
	const reset = () => {
		const query = { ...view.value.query };
		for (const f of set) delete query[f.name];
		change({ query }, "push");
	};
	return /* @__PURE__ */ a("section", {
		class: "card editor",
		"aria-label": "Parameters",
		children: [/* @__PURE__ */ a("fieldset", {
			class: "editor-groups",
			disabled: inFile,
			"data-tip": inFile ? LIVE : void 0,
			children: [groups.map((group) => /* @__PURE__ */ a(Group, {
				title: group,
				fields: fields.filter((f) => f.group === group && f.type !== "rows"),
				now,
				wrong,
				held: ofQuery
			}, group)), lists.map((f) => /* @__PURE__ */ a(Rows, {
				list: f,
				fields,
				now,
				wrong: wrong === f.name
			}, f.name))]
		}), /* @__PURE__ */ a("div", {
			class: "editor-foot",
			children: [
				lists.map((f) => /* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button accent",
					disabled: inFile,
					"data-tip": f.doc,
					onClick: () => addRow(f, fields, now),
					children: [
						/* @__PURE__ */ a(Icon, {
							name: "plus",
							size: 12
						}),
						"Add a ",
						(f.label ?? f.name).toLowerCase()
					]
				}, f.name)),
				/* @__PURE__ */ a("span", {
					class: "quiet",
					children: set.length ? `${set.length} ${set.length === 1 ? "field is" : "fields are"} set; the link of this page holds ${set.length === 1 ? "it" : "them"}.` : "Every field has its default."
				}),
				/* @__PURE__ */ a("button", {
					type: "button",
					class: "text-button accent",
					disabled: !set.length,
					onClick: reset,
					children: "Reset all"
				})
			]
		})]
	});
}
var ofQuery = (f) => ({
	asked: view.value.query[f.name],
	put: (to, how = "push") => setField(f, to, how)
});
function Group({ title, fields, now, wrong, held, onRemove }) {
	const [open, setOpen] = d$2(false);
	const says = fields.filter((f) => !now[f.name]?.idle || f.name === wrong);
	const shown = says.filter((f) => !f.seldom || open || held(f).asked !== void 0 || f.name === wrong);
	const seldom = says.some((f) => f.seldom);
	return /* @__PURE__ */ a("div", {
		class: "editor-group",
		role: "group",
		"aria-label": title,
		children: [
			/* @__PURE__ */ a("h2", { children: [title, onRemove && /* @__PURE__ */ a("button", {
				type: "button",
				class: "ghost",
				"aria-label": `Take away: ${title}`,
				"data-tip": "Take this away",
				onClick: onRemove,
				children: /* @__PURE__ */ a(Icon, {
					name: "close",
					size: 12
				})
			})] }),
			shown.map((f) => /* @__PURE__ */ a(Control, {
				f,
				now: now[f.name] ?? {},
				wrong: f.name === wrong,
				held: held(f)
			}, f.name)),
			seldom && /* @__PURE__ */ a("button", {
				type: "button",
				class: "text-button more",
				"aria-expanded": open,
				onClick: () => setOpen(!open),
				children: [open ? "Less" : "More", /* @__PURE__ */ a(Icon, {
					name: "down",
					size: 12
				})]
			})
		]
	});
}
/** The rows of a list, each a group of the same fields as the first. */
function Rows({ list, fields, now, wrong }) {
	const own = fields.filter((f) => list.rows.includes(f.name));
	const rows = rowsOf(view.value.query[list.name]);
	const put = (next, how = "push") => setField(list, textOfRows(next, own), how);
	const nowOf = (i) => Object.fromEntries(own.map((f) => [f.name, now[`${list.name}.${i}.${f.name}`] ?? {}]));
	return /* @__PURE__ */ a($, { children: rows.map((row, i) => /* @__PURE__ */ a(Group, {
		title: `${upper(list.label ?? list.name)} ${i + 2}`,
		fields: own,
		now: nowOf(i),
		wrong: wrong && i === rows.length - 1 ? own[0].name : "",
		held: (f) => ({
			asked: row[f.name],
			put: (to, how) => put(rows.map((r, at) => at === i ? {
				...r,
				[f.name]: to
			} : r), how)
		}),
		onRemove: () => put(rows.filter((_, at) => at !== i))
	}, i)) });
}
/** Adds the row that the report proposes. */
function addRow(list, fields, now) {
	const own = fields.filter((f) => list.rows.includes(f.name));
	const next = rowsOf(`[${now[list.name]?.value || "{}"}]`);
	setField(list, textOfRows([...rowsOf(view.value.query[list.name]), ...next], own));
}
function Control({ f, now, wrong, held }) {
	const { asked, put } = held;
	const chosen = asked !== void 0;
	const value = asked ?? now.value ?? pageDefault(f);
	const label = f.label ?? f.name;
	const tip = f.doc ?? "";
	if (f.slider?.length) return /* @__PURE__ */ a(Slider, {
		label,
		tip,
		value,
		values: now.values?.length ? now.values : f.slider,
		chosen,
		wrong,
		onMove: (v) => put(v, "replace"),
		onType: (v) => put(v)
	});
	if (f.type === "flag") {
		const on = /^(true|1|yes|on)$/i.test(value);
		return /* @__PURE__ */ a("div", {
			class: `row ${chosen ? "chosen" : ""}`,
			"data-tip": tip,
			children: [/* @__PURE__ */ a("span", { children: label }), /* @__PURE__ */ a(Toggle, {
				label,
				on,
				onToggle: () => put(on ? "false" : "true")
			})]
		});
	}
	const choices = f.choices?.length ? f.choices : f.type === "text" ? now.values : void 0;
	if (choices?.length) return /* @__PURE__ */ a(Choice, {
		f: {
			...f,
			choices: [...choices]
		},
		label,
		value: asked ?? "",
		resolved: now.value ?? "",
		wrong,
		put
	});
	return /* @__PURE__ */ a("div", {
		class: `row ${chosen ? "chosen" : ""}`,
		"data-tip": tip,
		children: [/* @__PURE__ */ a("span", { children: label }), /* @__PURE__ */ a(Box, {
			label,
			value: asked ?? "",
			placeholder: now.value || pageDefault(f) || "none",
			numeric: f.type === "number",
			wrong,
			onType: (v) => put(v)
		})]
	});
}
function Choice({ f, label, value, resolved, wrong, put }) {
	const free = f.type === "text";
	const text = (choice) => free || /[\d-]/.test(choice) ? choice : words(choice);
	const options = [{
		value: "",
		text: value || !resolved ? "Default" : `Default: ${text(resolved)}`
	}, ...f.choices.filter(Boolean).map((c) => ({
		value: c,
		text: text(c)
	}))];
	return /* @__PURE__ */ a("div", {
		class: `row ${value ? "chosen" : ""}`,
		"data-tip": f.doc,
		children: [/* @__PURE__ */ a("span", { children: label }), /* @__PURE__ */ a(Popover, {
			label: `${label}: ${text(value || resolved) || "default"}`,
			class: `button ${wrong ? "wrong" : ""} ${value ? "" : "open"}`,
			align: "right",
			button: /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a("span", {
				class: "ellipsis",
				children: text(value || resolved) || "Default"
			}), /* @__PURE__ */ a(Icon, {
				name: "down",
				size: 12
			})] }),
			children: (close) => {
				const pick = (v) => {
					put(v);
					close();
				};
				return /* @__PURE__ */ a(List, {
					label,
					value,
					options,
					onPick: pick,
					...free && { free: {
						ask: "Search or type",
						take: pick
					} }
				});
			}
		})]
	});
}
var upper = (text) => (text[0]?.toUpperCase() ?? "") + text.slice(1);
var sentences = (...parts) => parts.filter(Boolean).map((p) => upper(p).replace(/[^.!?]$/, "$&.")).join(" ");
// src/pages/app.tsx
function App() {
	if (alone) return /* @__PURE__ */ a("div", {
		class: `alone ${narrow.value ? "narrow" : ""} ${slim.value ? "slim" : ""}`,
		children: [
			/* @__PURE__ */ a("main", {
				id: "main",
				tabIndex: -1,
				children: /* @__PURE__ */ a(Content, {})
			}),
			/* @__PURE__ */ a(CopyField, {}),
			/* @__PURE__ */ a(Tip, {})
		]
	});
	return /* @__PURE__ */ a("div", {
		class: `shell ${narrow.value ? "narrow" : ""} ${slim.value ? "slim" : ""}`,
		children: [
			/* @__PURE__ */ a("a", {
				class: "skip",
				href: "#main",
				onClick: (e) => {
					e.preventDefault();
					document.getElementById("main")?.focus();
				},
				children: "To the page"
			}),
			/* @__PURE__ */ a(Nav, {}),
			/* @__PURE__ */ a("div", {
				class: "side",
				children: [/* @__PURE__ */ a(Bar, {}), /* @__PURE__ */ a("main", {
					id: "main",
					tabIndex: -1,
					children: /* @__PURE__ */ a(Content, {})
				})]
			}),
			/* @__PURE__ */ a(Help, {}),
			/* @__PURE__ */ a(Search, {}),
			/* @__PURE__ */ a(CopyField, {}),
			/* @__PURE__ */ a(Tip, {})
		]
	});
}
var Placeholder = () => /* @__PURE__ */ a(Delayed, { children: [/* @__PURE__ */ a(Delayed, {
	delay: 1500,
	children: /* @__PURE__ */ a("p", {
		class: "quiet computing",
		role: "status",
		children: "Computing this page…"
	})
}), /* @__PURE__ */ a(Skeleton, {})] });
function Content() {
	if (failure.value) return /* @__PURE__ */ a(NotLoaded, { failure: failure.value });
	if (needsNoRecording.value) return /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a(Family, {}), /* @__PURE__ */ a(Page, {})] });
	const list = runs.value;
	if (!list.value) return list.state === "error" ? /* @__PURE__ */ a(Failed, {
		what: "The list of runs could not be read",
		error: list.error,
		retry: () => void refreshRuns()
	}) : /* @__PURE__ */ a(Placeholder, {});
	const now = choice.value;
	const scanning = list.value.scan.state === "scanning";
	if (now.state !== "chosen" && page.value !== "overview" && !catalog.value.length) return /* @__PURE__ */ a(Placeholder, {});
	if (now.state === "none") return scanning ? /* @__PURE__ */ a(Delayed, { children: /* @__PURE__ */ a(Empty, { runs: list.value }) }) : /* @__PURE__ */ a(Empty, { runs: list.value });
	if (now.state === "absent") return scanning ? /* @__PURE__ */ a(Placeholder, {}) : /* @__PURE__ */ a(NotFound, { absent: now });
	const asked = pages.value;
	if (asked.state === "error") return /* @__PURE__ */ a(Failed, {
		what: asked.error.body.code === "stopped" ? "Reading was stopped" : "The recording could not be read",
		error: asked.error,
		retry: readAgain
	});
	if (asked.state !== "ready") return asked.state === "loading" ? /* @__PURE__ */ a(Delayed, { children: /* @__PURE__ */ a(Loading, {
		progress: asked.progress,
		since: asked.since
	}) }) : /* @__PURE__ */ a(Placeholder, {});
	return /* @__PURE__ */ a($, { children: [/* @__PURE__ */ a(Family, {}), /* @__PURE__ */ a(Page, {})] });
}
function Page() {
	const got = report.value;
	if (info.value?.fields?.some((f) => f.group)) return /* @__PURE__ */ a(EditedPage, {
		info: info.value,
		got
	});
	if (got.state === "error" && got.error.body.code === "not_in_file") return /* @__PURE__ */ a(NotInFile, { error: got.error });
	if (got.state === "error") return /* @__PURE__ */ a(Failed, {
		what: "This page could not be computed",
		error: got.error,
		retry: readAgain
	});
	if (got.state === "loading" && got.progress) return /* @__PURE__ */ a(Delayed, { children: /* @__PURE__ */ a(Loading, {
		progress: got.progress,
		since: got.since
	}) });
	const value = got.value;
	if (!value || value.analysis !== page.value) return /* @__PURE__ */ a(Placeholder, {});
	return value.available ? /* @__PURE__ */ a(ReportPage, {
		r: value,
		waiting: got.state !== "ready"
	}) : /* @__PURE__ */ a(NotAvailable, { r: value });
}
// src/pages/keys.ts
function startKeys() {
	takeKeys();
	document.addEventListener("keydown", (event) => {
		if (event.key === "Escape" && (helpOpen.peek() || copyOpen())) {
			helpOpen.value = false;
			closeCopy();
			return;
		}
		if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k" && (searchOpen.peek() || !document.querySelector(".dialog"))) {
			event.preventDefault();
			searchOpen.value = !searchOpen.peek();
			return;
		}
		if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
		if (document.querySelector(".dialog")) return;
		const key = event.key;
		if (key === "Escape" && !document.querySelector(".float") && stepOut()) return event.preventDefault();
		if (letterAwaited()) {
			awaitLetter(false);
			const name = LETTERS$1[key];
			if (name && catalog.peek().some((a) => a.name === name)) {
				event.preventDefault();
				go(pageView(name), "push");
			}
			return;
		}
		if (key === "g") awaitLetter(true);
		else if (key === "?") helpOpen.value = true;
		else if (key === "[") stepBy(-1);
		else if (key === "]") stepBy(1);
		else if (key === "/") document.querySelector(".find-input")?.focus();
		else return;
		event.preventDefault();
	});
}
// src/index.ts
/** ms after which Plotly is read on a page without a figure. */
var PLOTLY_AFTER = 2e3;
function stylesheet() {
	if (inFile) return Promise.resolve();
	return new Promise((done) => {
		const link = document.createElement("link");
		link.rel = "stylesheet";
		link.href = new URL("index.css", import.meta.url).href;
		link.onload = () => done();
		link.onerror = () => done();
		document.head.append(link);
	});
}
/** Shows the page. Called once, by TensorBoard, by serve.js or by a page that was saved as a file. */
async function render() {
	document.documentElement.lang = "en";
	startTheme();
	await openFile();
	followAddress();
	startData();
	if (page.peek() === "timeline") window.setTimeout(preload, PLOTLY_AFTER);
	else preload();
	startTips();
	startKeys();
	onReload(rescan);
	await stylesheet();
	const root = document.createElement("div");
	root.id = "tb-sol";
	document.body.append(root);
	Q(k$2(App, null), root);
	fitFrame(root.firstElementChild);
}
export { render };
