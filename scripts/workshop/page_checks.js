// What is wrong with the page as it is shown now, as a list of sentences; run by scripts/workshop/look_at_report.
(() => {
  const found = [];
  const width = document.documentElement.clientWidth;
  const shown = (node) => node.checkVisibility({ checkVisibilityCSS: true, checkOpacity: true }) &&
    !node.closest(".spoken, caption, .skip, defs");
  const name = (node) => {
    const part = node.closest("figure[id], section[id]");
    const classes = (node.getAttribute("class") || "").trim().split(/ +/).filter(Boolean);
    const text = (node.textContent || "").trim().slice(0, 40);
    return `${part ? `#${part.id} ` : ""}${[node.localName, ...classes].join(".")} "${text}"`;
  };
  // The nearest ancestor that clips or scrolls its content, without the page itself.
  const clipper = (node) => {
    for (let one = node.parentElement; one && one !== document.body; one = one.parentElement)
      if (getComputedStyle(one).overflowX !== "visible") return one;
    return null;
  };

  if (document.documentElement.scrollWidth > width)
    found.push(`the page is ${document.documentElement.scrollWidth} px wide in a window of ${width} px`);
  for (const node of document.body.querySelectorAll("*")) {
    const shape = node.parentElement.closest("svg") && node.localName !== "text";  // these are clipped by their svg
    if (shape || !shown(node) || clipper(node)) continue;
    const box = node.getBoundingClientRect();
    if (box.width && box.height && (box.right > width + 1 || box.left < -1))
      found.push(`outside the window (${Math.round(box.left)}…${Math.round(box.right)} px): ${name(node)}`);
  }

  const card = (node) => node.closest(".card, section, main").getBoundingClientRect();
  for (const svg of document.querySelectorAll("svg")) {
    if (svg.parentElement.closest("svg")) continue;
    const texts = [...svg.querySelectorAll("text")].filter(shown);
    const boxes = texts.map((node) => node.getBoundingClientRect());
    boxes.forEach((a, i) => {
      for (let k = i + 1; k < boxes.length; ++k) {
        const b = boxes[k];
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
            Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
          found.push(`texts overlap: ${name(texts[i])} and ${name(texts[k])}`);
      }
      const clips = getComputedStyle(svg).overflowX !== "visible";
      const outer = clips ? svg.getBoundingClientRect() : card(svg);
      if (a.left < outer.left - 1 || a.right > outer.right + 1 || a.top < outer.top - 1 || a.bottom > outer.bottom + 1)
        found.push(`text is cut: ${name(texts[i])}`);
      const size = parseFloat(getComputedStyle(texts[i]).fontSize);
      if (size < 9) found.push(`text of ${size} px: ${name(texts[i])}`);
    });
  }
  for (const node of document.body.querySelectorAll("*")) {  // a box that hides the end of its text
    const style = getComputedStyle(node);
    if (!shown(node) || !["hidden", "clip"].includes(style.overflowX) || !node.textContent.trim() ||
        node.closest("svg")) continue;
    if (node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1)
      found.push(`text is cut by its box: ${name(node)}`);
  }

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {  // any CSS colour as four bytes
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, bottom) => top.slice(0, 3).map((v, i) => v * top[3] / 255 + bottom[i] * (1 - top[3] / 255));
  const luminance = (color) => {
    const [r, g, b] = color.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (node) => {
    const layers = [];
    for (let one = node; one; one = one.parentElement) layers.push(rgba(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const seen = new Set();
  for (const node of document.body.querySelectorAll("*")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !shown(node) || ["script", "style", "title"].includes(node.localName)) continue;
    const style = getComputedStyle(node), below = background(node);
    const color = over(rgba(node.namespaceURI.endsWith("svg") ? style.fill : style.color), below);
    const [dark, light] = [luminance(color), luminance(below)].sort((a, b) => a - b);
    const contrast = (light + 0.05) / (dark + 0.05), key = `${color} ${below}`;
    if (contrast < 4.5 && !seen.has(key)) found.push(`contrast ${contrast.toFixed(2)}: ${name(node)}`);
    seen.add(key);
  }
  return found;
})()
