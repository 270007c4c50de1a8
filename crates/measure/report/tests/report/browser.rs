//! Pages in a real browser: at the width of a telephone and of a large screen, dark and light.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bellows_testkit::programs::{has_program, run};
use bellows_testkit::scratch::{self, TempDir, scratch};

use crate::data::{report, shapes};

const BROWSER: &str = "chromium";

/// Keeps the screenshots in the folder that it names.
const SCREENSHOTS: &str = "BELLOWS_SCREENSHOTS";

const WIDTHS: [u32; 2] = [360, 1_600];

/// Chromium's number of each scheme.
const SCHEMES: [(&str, u8); 2] = [("dark", 0), ("light", 1)];

/// Looks at the pages in frames of some width, whose own scripts are off, and lists what is wrong.
const MEASURE: &str = r#"
const luminance = colour => {
  const part = value => { value /= 255; return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4 };
  return 0.2126 * part(colour[0]) + 0.7152 * part(colour[1]) + 0.0722 * part(colour[2]);
};
const parsed = text => (text.match(/[\d.]+/g) || []).map(Number);
const contrast = (one, other) => {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};
const ground = (view, element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parsed(view.getComputedStyle(at).backgroundColor);
    if (colour.length == 3 || colour[3] == 1) return colour;
  }
  return [255, 255, 255];
};
const look = (name, frame) => {
  const view = frame.contentWindow, page = frame.contentDocument, wrong = [], width = page.documentElement.clientWidth;
  const say = (what, element) =>
    wrong.push(`${name}: ${what}: ${element.tagName} ${element.className.baseVal ?? element.className} ${element.textContent.slice(0, 60)}`);
  if (width != frame.dataset.width) wrong.push(`${name}: the page is ${width} wide`);
  if (page.documentElement.scrollWidth > width) wrong.push(`${name}: scrolls to ${page.documentElement.scrollWidth}`);
  if (view.performance.getEntriesByType("resource").length) wrong.push(`${name}: requests something`);
  if (page.scripts.length) wrong.push(`${name}: has a script`);
  let texts = 0;
  for (const element of page.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect(), style = view.getComputedStyle(element);
    if (!box.width || !box.height || element.tagName == "title") continue;
    if (box.right > width + 0.6 || box.left < -0.6) say(`from ${box.left} to ${box.right}`, element);
    if (![...element.childNodes].some(node => node.nodeType == 3 && node.data.trim())) continue;
    texts += 1;
    const svg = element.closest("svg");
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    if (parseFloat(style.fontSize) * scale < 10.99) say(`text of ${parseFloat(style.fontSize) * scale} pixels`, element);
    const colour = parsed(svg ? style.fill : style.color);
    const ratio = contrast(colour, ground(view, svg ? svg.parentElement : element));
    if (ratio < 4.5) say(`contrast ${ratio}`, element);
    if (svg) {
      const frame = svg.getBoundingClientRect();
      if (box.right > frame.right + 1.5 || box.left < frame.left - 1.5 || box.bottom > frame.bottom + 1.5) say("is cut", element);
    }
  }
  if (texts < 20) wrong.push(`${name}: has only ${texts} texts`);
  return wrong;
};
window.onload = () => {
  const wrong = [...document.querySelectorAll("iframe")].flatMap(frame => look(frame.title, frame));
  const pictures = [...document.images].filter(image => !image.naturalWidth).map(image => `${image.src} is not drawn`);
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.body.innerHTML = "<pre></pre>";
  document.body.firstChild.textContent = ["MEASURED " + (isDark ? "dark" : "light"), ...wrong, ...pictures].join("\n");
};
"#;

fn chromium(folder: &TempDir, scheme: u8) -> Command {
    let mut command = Command::new(BROWSER);
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    // The sandbox needs a user other than root.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", &profile]);
    command.arg("--host-resolver-rules=MAP * ~NOTFOUND").arg(format!("--blink-settings=preferredColorScheme={scheme}"));
    command
}

fn escaped(html: &str) -> String {
    html.replace('&', "&amp;").replace('"', "&quot;")
}

/// A page with other pages in frames of some width and height.
fn framed(pages: &[(String, String)], width: u32, height: u32) -> String {
    let mut body = String::new();
    for (name, html) in pages {
        write!(
            body,
            "<iframe title=\"{name}\" data-width=\"{width}\" style=\"border:0;display:block;width:{width}px;height:{height}px\" srcdoc=\"{}\"></iframe>",
            escaped(html)
        )
        .unwrap();
    }
    format!("<!doctype html><meta charset=utf-8><body style=\"margin:0\">{body}")
}

#[test]
fn pages_fit_telephones_and_large_screens() {
    let test = "pages_fit_telephones_and_large_screens";
    if !has_program(test, BROWSER) {
        return;
    }
    let folder = scratch();
    let reports: Vec<_> = shapes().into_iter().map(|(name, text)| (name, report(&text))).collect();
    let pages: Vec<(String, String)> =
        reports.iter().map(|(name, report)| ((*name).to_owned(), report.html().unwrap())).collect();
    let mut images = String::new();
    for (shape, (_, report)) in reports.iter().enumerate() {
        for picture in report.pictures() {
            let name = format!("{shape}-{}.svg", picture.name);
            scratch::write(&folder, &name, &picture.svg);
            write!(images, "<img src=\"{name}\">").unwrap();
        }
    }
    let mut wrong = Vec::new();
    for (scheme, number) in SCHEMES {
        for width in WIDTHS {
            // Dark pages differ in their colours alone, and large ones have room but for long labels.
            let is_meant = |name: &str| match (scheme, width) {
                ("light", 360) => true,
                ("light", _) => ["document", "long", "markup"].contains(&name),
                _ => name == "document",
            };
            let pages: Vec<_> = pages.iter().filter(|(name, _)| is_meant(name)).cloned().collect();
            let images = if is_meant("60 levels") { images.as_str() } else { "" };
            let page = framed(&pages, width, 600) + images + "<script>" + MEASURE + "</script>";
            let path = scratch::write(&folder, format!("measure-{width}.html"), page);
            let dump =
                run(chromium(&folder, number).arg("--window-size=1700,900").arg("--dump-dom").arg(&path)).unwrap();
            let begin = dump.find("MEASURED").unwrap_or_else(|| panic!("the script did not run: {dump}"));
            let end = dump[begin..].find("</pre>").map_or(dump.len(), |at| begin + at);
            let mut lines = dump[begin..end].lines();
            assert_eq!(lines.next(), Some(format!("MEASURED {scheme}").as_str()));
            wrong.extend(lines.map(|line| format!("{scheme}, {width}: {line}")));
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong[..wrong.len().min(60)].join("\n"));
}

#[test]
fn pages_have_screenshots() {
    if !has_program("pages_have_screenshots", BROWSER) {
        return;
    }
    let folder = scratch();
    let kept = std::env::var_os(SCREENSHOTS).map(PathBuf::from);
    let target = kept.as_deref().unwrap_or(folder.path());
    let shapes = shapes();
    let shown = |name: &str| kept.is_some() || name == "document";
    for (name, text) in shapes.iter().filter(|(name, _)| shown(name)) {
        let html = report(text).html().unwrap();
        for (scheme, number) in SCHEMES {
            for (width, height) in WIDTHS.into_iter().zip([9_000, 5_200]) {
                let page = framed(&[((*name).to_owned(), html.clone())], width, height);
                let path = scratch::write(&folder, "page.html", page);
                let picture = target.join(format!("{}-{scheme}-{width}.png", name.replace(' ', "-")));
                let mut command = chromium(&folder, number);
                // A window has at least 500 pixels.
                command.arg(format!("--window-size={},{height}", width.max(500)));
                run(command.arg(format!("--screenshot={}", picture.display())).arg(&path)).unwrap();
                assert_is_drawn(&picture);
            }
        }
    }
}

/// A page without anything on it takes some kilobytes.
fn assert_is_drawn(picture: &Path) {
    let bytes = std::fs::read(picture).unwrap();
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 60_000, "{}: {} bytes", picture.display(), bytes.len());
}
