//! Colours, and the style of pictures and pages in a light and a dark scheme.
//!
//! The colours of levels differ for any kind of colour vision, and also differ in their dashes; tiles become
//! darker or lighter in one hue, so that success is never reddish. Text has a contrast of at least 4.5 to its ground.

use std::fmt::Write as _;

/// The number of colours of levels.
pub(crate) const LEVELS: usize = 6;

/// The number of steps of tiles.
pub(crate) const STEPS: usize = 7;

/// The dashes of levels.
const DASHES: [&str; LEVELS] = ["none", "7 3", "2 2.5", "9 3 2 3", "4 2", "12 3 2 3 2 3"];

/// The colours of a scheme.
pub(crate) struct Scheme {
    pub(crate) paper: &'static str,
    pub(crate) ink: &'static str,
    /// Text of less importance.
    pub(crate) soft: &'static str,
    pub(crate) line: &'static str,
    /// Failures and disturbances.
    pub(crate) warn: &'static str,
    pub(crate) levels: [&'static str; LEVELS],
    /// Grounds of tiles and the text on them.
    pub(crate) tiles: [(&'static str, &'static str); STEPS],
}

pub(crate) const LIGHT: Scheme = Scheme {
    paper: "#ffffff",
    ink: "#1b1f24",
    soft: "#57606a",
    line: "#d8dee4",
    warn: "#8a5a00",
    levels: ["#0b5cad", "#a84300", "#006b54", "#86307f", "#5e5600", "#3d4450"],
    tiles: [
        ("#f3f7fb", "#1b1f24"),
        ("#dfeaf5", "#1b1f24"),
        ("#c6dbee", "#1b1f24"),
        ("#a6c8e4", "#1b1f24"),
        ("#7fb0d8", "#1b1f24"),
        ("#2f6da3", "#ffffff"),
        ("#1b4f80", "#ffffff"),
    ],
};

pub(crate) const DARK: Scheme = Scheme {
    paper: "#14171c",
    ink: "#e6e9ed",
    soft: "#a3acb8",
    line: "#343b45",
    warn: "#f0b429",
    levels: ["#6fb4ff", "#ffa45c", "#45cfa5", "#e79be0", "#d6cb5f", "#c3cbd6"],
    tiles: [
        ("#1b222c", "#e6e9ed"),
        ("#203144", "#e6e9ed"),
        ("#26425f", "#e6e9ed"),
        ("#2c547c", "#e6e9ed"),
        ("#316494", "#ffffff"),
        ("#8fc0ee", "#14171c"),
        ("#c9e2f8", "#14171c"),
    ],
};

/// The style of pictures: with `root`, also of the ground that a picture of its own has.
pub(crate) fn style() -> String {
    let mut style = String::from(
        ".bellows-report{font:11px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif}\
         .bellows-report text{unicode-bidi:plaintext}\
         .bellows-report .end{text-anchor:end}.bellows-report .mid{text-anchor:middle}\
         .bellows-report .big{font-size:14px;font-weight:600}.bellows-report .head{font-weight:600}\
         .bellows-report .curve{fill:none;stroke-width:1.6;stroke-linejoin:round}\
         .bellows-report .area{stroke:none;fill-opacity:.09}\
         .bellows-report .tick{fill:none;stroke-width:1}\
         .bellows-report .many{fill:none;stroke-width:2;stroke-opacity:.85}\
         .bellows-report .thin{fill:none;stroke-width:.75}.bellows-report .thick{fill:none;stroke-width:2}\
         .bellows-report .dot{stroke:none}.bellows-report .hollow{fill:none;stroke-width:1.3}",
    );
    for (level, dash) in DASHES.iter().enumerate() {
        let _ = write!(style, ".bellows-report .curve.l{level}{{stroke-dasharray:{dash}}}");
    }
    style.push_str(&colours(&LIGHT));
    let _ = write!(style, "@media screen and (prefers-color-scheme:dark){{{}}}", colours(&DARK));
    style
}

fn colours(scheme: &Scheme) -> String {
    let Scheme { paper, ink, soft, line, warn, levels, tiles } = scheme;
    let mut style = format!(
        ".bellows-report text{{fill:{ink}}}.bellows-report .paper{{fill:{paper}}}.bellows-report .soft{{fill:{soft}}}\
         .bellows-report .axis{{stroke:{soft};fill:none}}.bellows-report .grid{{stroke:{line};fill:none}}\
         .bellows-report .mark{{stroke:{ink};fill:none}}.bellows-report .dot{{fill:{ink}}}\
         .bellows-report .band{{fill:{soft};fill-opacity:.35}}.bellows-report .wide{{fill:{soft};fill-opacity:.16}}\
         .bellows-report .warn{{stroke:{warn}}}.bellows-report text.warn{{fill:{warn};stroke:none}}\
         .bellows-report .cut{{fill:{paper};stroke:{line}}}",
    );
    for (level, colour) in levels.iter().enumerate() {
        let _ = write!(
            style,
            ".bellows-report .l{level}{{stroke:{colour}}}.bellows-report text.l{level}{{fill:{colour};stroke:none}}\
             .bellows-report .area.l{level},.bellows-report .dot.l{level}{{fill:{colour};stroke:none}}"
        );
    }
    for (step, (ground, text)) in tiles.iter().enumerate() {
        let _ = write!(
            style,
            ".bellows-report .t{step}{{fill:{ground}}}.bellows-report text.x{step}{{fill:{text}}}\
             .tile.t{step}{{background:{ground};color:{text}}}"
        );
    }
    style
}

/// The variables of a page.
pub(crate) fn variables() -> String {
    let of = |Scheme { paper, ink, soft, line, warn, levels, .. }: &Scheme| {
        let mut text = format!("--paper:{paper};--ink:{ink};--soft:{soft};--line:{line};--warn:{warn};");
        for (level, colour) in levels.iter().enumerate() {
            let _ = write!(text, "--l{level}:{colour};");
        }
        text
    };
    format!(
        ":root{{color-scheme:light dark;{}}}@media screen and (prefers-color-scheme:dark){{:root{{{}}}}}",
        of(&LIGHT),
        of(&DARK)
    )
}

/// The step of a tile for a share from 0 to 1.
pub(crate) fn step(share: f64) -> usize {
    ((share * STEPS as f64) as usize).min(STEPS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance by WCAG 2.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let [one, other] = [one, other].map(luminance);
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn text_and_curves_have_a_contrast_of_four_and_a_half() {
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
        for scheme in [&LIGHT, &DARK] {
            for colour in [scheme.ink, scheme.soft, scheme.warn].iter().chain(&scheme.levels) {
                assert!(contrast(colour, scheme.paper) >= 4.5, "{colour}: {}", contrast(colour, scheme.paper));
            }
            for (ground, text) in scheme.tiles {
                assert!(contrast(ground, text) >= 4.5, "{ground} {text}: {}", contrast(ground, text));
            }
        }
    }

    /// With dichromatic vision (Viénot, Brettel and Mollon, *Color Research & Application* 24, 1999), tiles keep their
    /// order of lightness, and are never reddish.
    #[test]
    fn tiles_are_one_rise_of_lightness_without_red() {
        for (scheme, sign) in [(&LIGHT, -1.0), (&DARK, 1.0)] {
            for pair in scheme.tiles.windows(2) {
                assert!(sign * (luminance(pair[1].0) - luminance(pair[0].0)) > 0.0, "{pair:?}");
            }
            for (ground, _) in scheme.tiles {
                let part = |at: usize| u8::from_str_radix(&ground[at..at + 2], 16).unwrap();
                assert!(part(1) <= part(3) && part(3) <= part(5), "{ground} is bluish");
            }
        }
    }

    #[test]
    fn every_level_has_a_dash_of_its_own() {
        let dashes: std::collections::HashSet<&str> = DASHES.into_iter().collect();
        assert_eq!(dashes.len(), LEVELS);
        assert_eq!([step(0.0), step(0.5), step(1.0)], [0, 3, 6]);
    }
}
