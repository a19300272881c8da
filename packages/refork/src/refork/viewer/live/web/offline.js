// Answers of a file that was made to be shared: everything was asked beforehand and lies in the page.
const MISSING = "this file does not hold that: it was left out when the file was made";

function offline(shared) {
  const task = (id) => shared.tasks.tasks.find((one) => one.id === id);
  const key = (asked) => [asked.task, asked.score || shared.tree.scores[0] || "", asked.joined === false ? 0 : 1].join("|");
  const held = (table, name) => {
    if (!table || !(name in table)) throw new Error(MISSING);
    return table[name];
  };

  function tasks(asked) {
    const wanted = (asked.text || "").toLowerCase();
    const low = asked.low ?? -Infinity;
    const high = asked.high ?? Infinity;
    const bounded = asked.low != null || asked.high != null;
    const found = shared.tasks.tasks.filter(
      (one) =>
        one.text.toLowerCase().includes(wanted) &&
        (!asked.world || one.world === asked.world) &&
        (!asked.forked || one.forks) &&
        (!bounded || (one.mean != null && one.mean >= low && one.mean <= high)),
    );
    const last = (one, sign) => (one.mean == null ? Infinity : sign * one.mean);
    if (asked.order === "lowest") found.sort((a, b) => last(a, 1) - last(b, 1));
    if (asked.order === "highest") found.sort((a, b) => last(a, -1) - last(b, -1));
    if (asked.order === "largest") found.sort((a, b) => b.nodes - a.nodes);
    const start = asked.start || 0;
    return { ...shared.tasks, tasks: found.slice(start, start + (asked.count || 100)), total: found.length, start };
  }

  function walk(asked) {
    const steps = [];
    let node = held(shared.nodes, asked.node);
    let keep = null;
    while (node) {
      steps.unshift({ id: node.id, keep, kind: node.kind });
      keep = node.keep;
      node = node.parent ? held(shared.nodes, node.parent) : null;
    }
    return { leaf: asked.node, task: steps[0].id, steps, version: shared.tree.version };
  }

  function textOf(node) {
    return node.tokens ? node.tokens.join("") : node.text;
  }

  function search(asked) {
    const wanted = (asked.text || "").toLowerCase();
    const lines = [];
    let nodes = 0;
    for (const line of held(shared.lines, key(asked))) {
      const hits = line.nodes.filter((id) => {
        const node = shared.nodes[id];
        return (
          textOf(node).toLowerCase().includes(wanted) && (!asked.kind || node.kind === asked.kind) && (!asked.errors || node.error)
        );
      });
      nodes += hits.length;
      if (hits.length) lines.push(line.line);
    }
    return { lines, nodes, more: false };
  }

  function place(asked) {
    const found = held(shared.lines, key(asked)).find((line) => line.nodes.includes(asked.node));
    return { line: found ? found.line : null };
  }

  const answers = {
    trees: () => ({ trees: [{ name: shared.tree.name, nodes: shared.tree.nodes, tasks: shared.tasks.all, bytes: null }] }),
    tree: () => shared.tree,
    version: () => ({ version: shared.tree.version }),
    tasks,
    shape: (asked) => held(shared.shapes, key(asked)),
    lines: (asked) => {
      const all = held(shared.lines, key(asked));
      return { lines: asked.wanted.split(",").map((line) => all[line]) };
    },
    search,
    place,
    walk,
    nodes: (asked) => ({ nodes: asked.ids.split(",").map((id) => held(shared.nodes, id)) }),
    page: () => held(null, ""),
    branches: (asked) => held(shared.branches, `${asked.node}|${asked.score || shared.tree.scores[0] || ""}`),
    diff: (asked) => held(shared.diffs, `${asked.left}|${asked.right}`),
    effects: (asked) => {
      const pairs = shared.effects.pairs.filter((pair) => !asked.task || pair.task === asked.task);
      return { ...shared.effects, pairs, total: pairs.length };
    },
    effect: (asked) => held(shared.effect, `${asked.control}|${asked.changed}|${asked.score}`),
    versions: (asked) => held(shared.versions, asked.name),
    said: (asked) => shared.said[asked.node] || { scores: [] },
    graph: (asked) => held(shared.graph, `${asked.task}|${asked.score || shared.tree.scores[0] || ""}`),
    forks: () => ({ jobs: [] }),
  };
  return async (question, asked = {}) => {
    if (asked.task && !task(asked.task)) throw new Error(MISSING);
    return answers[question](asked);
  };
}

export { offline };
