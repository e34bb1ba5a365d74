// Fills the choice of versions: each is a folder beside this one, and versions.json there lists them.
(async () => {
  const box = document.querySelector(".sidebar-versions");
  const { site, page, version } = box.dataset;
  let versions;
  try {
    versions = await (await fetch(`${site}versions.json`)).json();
  } catch {
    return; // read from a folder, or one version by itself
  }
  const choice = box.querySelector("select");
  for (const name of versions) choice.add(new Option(name, name, name === version, name === version));
  choice.addEventListener("change", async () => {
    const there = `${site}${choice.value}/`;
    const same = await fetch(there + page, { method: "HEAD" });
    location.href = same.ok ? there + page : there;
  });
  box.hidden = false;
})();
