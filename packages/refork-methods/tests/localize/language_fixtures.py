"""Small repositories of several files, one per language; nothing here is run."""

JAVASCRIPT = {
    "package.json": '{"name": "shop", "main": "src/index.js"}',
    "packages/money/package.json": '{"name": "@shop/money", "main": "lib/money.js"}',
    "packages/money/lib/money.js": "/** Cents of a price. */\nexport const cents = (price) => price * 100;\n",
    "src/index.js": (
        "import { Cart } from './cart.js';\n"
        "import { cents } from '@shop/money';\n"
        "export * from './util';\n"
        "const rules = require('./rules');\n"
        "export function total(items) {\n"
        "  const cart = new Cart(items);\n"
        "  return cents(cart.sum()) + rules.fee(items);\n"
        "}\n"
    ),
    "src/cart.js": (
        "import Base, { helper as help } from './util/index.js';\n"
        "// Items and their sum.\n"
        "export class Cart extends Base {\n"
        "  constructor(items) { super(); this.items = items; }\n"
        "  sum() {\n    return help(this.each());\n  }\n"
        "  each() { return this.items; }\n"
        "}\n"
    ),
    "src/util/index.js": "export default class Base {}\nexport function helper(xs) { return xs.length; }\n",
    "src/rules.js": "const path = require('path');\nmodule.exports.fee = function (items) {\n"
    "  return items.length;\n};\n",
}

TYPESCRIPT = {
    "tsconfig.json": "{\n  // aliases\n"
    '  "compilerOptions": {"baseUrl": ".", "paths": {"@app/*": ["src/*"]},},\n}\n',
    "src/model.ts": (
        "export interface Shape { area(): number; }\n"
        "export type Pair = [number, number];\n"
        "export enum Color { Red, Green }\n"
        "export abstract class Figure implements Shape {\n"
        "  abstract area(): number;\n"
        "  describe(): string { return `area ${this.area()}`; }\n"
        "}\n"
    ),
    "src/square.ts": (
        "import { Figure } from '@app/model';\n"
        "import type { Pair } from './model.js';\n"
        "export class Square extends Figure {\n"
        "  constructor(private side: number) { super(); }\n"
        "  area(): number { return multiply([this.side, this.side]); }\n"
        "  scale = (by: number) => new Square(this.side * by);\n"
        "}\n"
        "function multiply(pair: Pair): number { return pair[0] * pair[1]; }\n"
    ),
    "src/view.tsx": (
        "import { Square } from './square';\n"
        "export const View = (props: { side: number }) => {\n"
        "  const made = new Square(props.side);\n"
        "  return <div>{made.area()}</div>;\n"
        "};\n"
    ),
}

GO = {
    "go.mod": "module example.com/bank\n\ngo 1.22\n",
    "main.go": (
        'package main\n\nimport (\n\t"fmt"\n\n\tacc "example.com/bank/account"\n)\n\n'
        "func main() {\n\ta := acc.Open(3)\n\ta.Deposit(2)\n\tfmt.Println(a)\n}\n"
    ),
    "account/account.go": (
        "package account\n\n// Account holds money.\ntype Account struct {\n\tbalance int\n}\n\n"
        "const limit = 100\n\n"
        "// Open makes an account.\nfunc Open(start int) *Account {\n"
        "\treturn &Account{balance: check(start)}\n}\n\n"
        "func (a *Account) Deposit(n int) {\n\ta.balance = check(a.balance + n)\n}\n"
    ),
    "account/check.go": "package account\n\nfunc check(n int) int {\n\tif n > limit {\n"
    "\t\treturn limit\n\t}\n\treturn n\n}\n",
    "account/account_test.go": "package account\n\nfunc helper() {}\n",
}

RUST = {
    "Cargo.toml": '[package]\nname = "grid-tool"\n',
    "src/lib.rs": "pub mod shape;\nmod util;\npub use shape::circle::Circle;\n",
    "src/shape/mod.rs": "pub mod circle;\npub trait Area {\n    fn area(&self) -> f64;\n}\n",
    "src/shape/circle.rs": (
        "use super::Area;\nuse crate::util::{self, square as sq};\n\n"
        "/// A round thing.\n#[derive(Debug)]\npub struct Circle {\n    pub r: f64,\n}\n\n"
        "impl Circle {\n    pub fn new(r: f64) -> Self {\n        util::check(r);\n"
        "        Circle { r }\n    }\n}\n\n"
        "impl Area for Circle {\n    fn area(&self) -> f64 {\n        3.0 * sq(self.r)\n    }\n}\n"
    ),
    "src/util.rs": "pub fn square(x: f64) -> f64 { x * x }\npub fn check(x: f64) { assert!(x > 0.0); }\n",
    "src/main.rs": "use grid_tool::shape::circle::Circle;\nfn main() {\n    let c = Circle::new(1.0);\n}\n",
}

JAVA = {
    "src/main/java/org/lib/Stack.java": (
        "package org.lib;\n\nimport org.lib.base.Node;\nimport static org.lib.util.Checks.require;\n"
        "import java.util.List;\n\n"
        "/** Last in, first out. */\npublic class Stack<T> extends Holder implements Iterable<T> {\n"
        "    private Node<T> head = null;\n\n"
        "    public Stack() {}\n\n"
        "    @Override\n    public void push(T item) {\n        require(item);\n        this.grow();\n"
        "        head = new Node<>(item, head);\n    }\n\n"
        "    void grow() {}\n}\n"
    ),
    "src/main/java/org/lib/Holder.java": "package org.lib;\n\nclass Holder {\n"
    "    int size() { return 0; }\n}\n",
    "src/main/java/org/lib/base/Node.java": (
        "package org.lib.base;\n\npublic class Node<T> {\n    public Node(T item, Node<T> next) {}\n"
        "    enum Kind { A, B }\n}\n"
    ),
    "src/main/java/org/lib/util/Checks.java": (
        "package org.lib.util;\n\npublic final class Checks {\n"
        "    public static void require(Object o) {}\n}\n"
    ),
    "src/test/java/org/lib/StackTest.java": "package org.lib;\n\nimport org.lib.base.*;\n\n"
    "class StackTest {\n}\n",
}

C = {
    "include/vec.h": "#ifndef VEC_H\n#define VEC_H\n#define VEC_MAX 8\n"
    "typedef struct vec { int n; } vec;\nint vec_push(vec *v, int x);\n#endif\n",
    "src/vec.c": (
        '#include "vec.h"\n#include <stdlib.h>\n\nstatic int grow(vec *v) { return v->n * 2; }\n\n'
        "/* Append one item. */\nint vec_push(vec *v, int x)\n{\n    if (v->n == VEC_MAX)\n"
        "        grow(v);\n    return x;\n}\n"
    ),
    "src/main.c": '#include <vec.h>\n#include "local.h"\n\nint main(void) {\n    vec v;\n'
    "    return vec_push(&v, ONE);\n}\n",
    "src/local.h": "#define ONE 1\n",
}

CPP = {
    "lib/shape.hpp": (
        "#pragma once\nnamespace geo {\nclass Shape {\n public:\n  virtual double area() const = 0;\n};\n"
        "class Square : public Shape {\n public:\n  explicit Square(double s);\n"
        "  double area() const override;\n"
        "  double twice() const { return area() * 2; }\n private:\n  double side_;\n};\n"
        "template <class T> T clamp(T x) { return x; }\n}\n"
    ),
    "lib/shape.cpp": (
        '#include "shape.hpp"\nnamespace geo {\nSquare::Square(double s) : side_(s) {}\n'
        "double Square::area() const {\n  return clamp<double>(side_ * side_);\n}\n}\n"
    ),
    "app/main.cpp": '#include "../lib/shape.hpp"\nint main() {\n  geo::Square s(2);\n'
    "  auto p = new geo::Square(1);\n  return s.area();\n}\n",
}
