//! The picture: clocks a packet of the first node by packets in flight, with look-ahead and without.

use std::fmt::Write;

use bellows_stats::Median;

/// The clocks of the first node with some packets in flight: as it is, and without look-ahead.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) in_flight: usize,
    pub(super) clocks: [Median; 2],
}

/// Size of the picture, and the margins around the plot: left, right, above, below.
const SIZE: (f64, f64) = (640.0, 400.0);
const MARGINS: [f64; 4] = [60.0, 130.0, 66.0, 50.0];

/// The curves: their classes, and their names at the right end.
const CURVES: [(&str, &str); 2] = [("with", "as it is"), ("without", "no look-ahead")];

/// The approximate number of lines across the plot.
const LINES: f64 = 6.0;

/// Draws spots, in the order of their packets in flight, as SVG.
pub(super) fn svg(title: &str, spots: &[Spot]) -> String {
    let [left, right, above, below] = MARGINS;
    let (width, height) = SIZE;
    let (end, ground) = (width - right, height - below);
    let bits = |in_flight: usize| (in_flight.max(1) as f64).log2();
    let first = spots.first().map_or(0.0, |spot| bits(spot.in_flight));
    let last = spots.last().map_or(1.0, |spot| bits(spot.in_flight)).max(first + 1.0);
    let x = |in_flight: usize| left + (bits(in_flight) - first) / (last - first) * (end - left);
    let most = spots.iter().flat_map(|spot| spot.clocks).map(|clocks| clocks.high).fold(1.0, f64::max);
    let step = round_up(most / LINES);
    let top = (most / step).ceil() * step;
    let y = |clocks: f64| ground - clocks / top * (ground - above);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bellows-plot\" role=\"img\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n\
         <text class=\"title\" x=\"{left}\" y=\"26\">{title}</text>\n"
    );
    for line in 0..=(top / step).round() as u32 {
        let clocks = f64::from(line) * step;
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{left} {at:.1}H{end}\"/><text class=\"end\" x=\"{}\" y=\"{:.1}\">{clocks}</text>",
            left - 8.0,
            y(clocks) + 4.0,
            at = y(clocks),
        );
    }
    for spot in spots {
        let at = x(spot.in_flight);
        let _ = writeln!(out, "<text class=\"middle\" x=\"{at:.1}\" y=\"{}\">{}</text>", ground + 18.0, spot.in_flight);
    }
    let _ = writeln!(
        out,
        "<text class=\"middle\" x=\"{}\" y=\"{}\">packets in flight</text>\n<text x=\"{}\" y=\"{}\">clocks a packet</text>",
        (left + end) / 2.0,
        ground + 38.0,
        left - 40.0,
        above - 16.0,
    );
    // Names at the right end stay apart.
    let ends: Vec<f64> = (0..CURVES.len()).filter_map(|curve| Some(y(spots.last()?.clocks[curve].value))).collect();
    let is_close = matches!(ends[..], [with, without] if (with - without).abs() < 16.0);
    for (curve, (class, name)) in CURVES.iter().enumerate() {
        let mut line = String::new();
        for spot in spots {
            let Median { value, low, high } = spot.clocks[curve];
            let at = x(spot.in_flight);
            let _ = write!(line, "{}{at:.1} {:.1}", if line.is_empty() { "M" } else { "L" }, y(value));
            let _ = writeln!(
                out,
                "<g class=\"{class}\"><path d=\"M{at:.1} {:.1}V{:.1}\"/><circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3.5\"/></g>",
                y(low),
                y(high),
                y(value)
            );
        }
        let down = if is_close { [12.0, -4.0][curve] } else { 4.0 };
        let end_y = ends.get(curve).map_or(0.0, |at| at + down);
        let _ = writeln!(
            out,
            "<g class=\"{class}\"><path d=\"{line}\"/><text x=\"{:.1}\" y=\"{end_y:.1}\">{name}</text></g>",
            end + 12.0
        );
    }
    out + "</svg>\n"
}

/// The next of 1, 2, 5, 10, 20, ….
pub(in crate::benchmarks) fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&step| step >= value).unwrap_or(value)
}

const STYLE: &str = ".bellows-plot text{font:12px system-ui,sans-serif;fill:#1f2733}\
     .bellows-plot .title{font-size:14px;font-weight:600}\
     .bellows-plot .middle{text-anchor:middle}.bellows-plot .end{text-anchor:end}\
     .bellows-plot .paper{fill:#fff}.bellows-plot .grid{stroke:#d5dbe4}\
     .bellows-plot g path{fill:none;stroke-width:2}\
     .bellows-plot .with path{stroke:#1769aa}.bellows-plot .with circle,.bellows-plot .with text{fill:#1769aa}\
     .bellows-plot .without path{stroke:#c2410c}.bellows-plot .without circle,.bellows-plot .without text{fill:#c2410c}";

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(in_flight: usize, with: f64, without: f64) -> Spot {
        let clocks = [with, without].map(|value| Median { value, low: value - 1.0, high: value + 1.0 });
        Spot { in_flight, clocks }
    }

    #[test]
    fn curves_rise_with_the_clocks_and_have_names() {
        let svg = svg("a title", &[spot(256, 10.0, 10.0), spot(65_536, 35.0, 54.0)]);
        for wanted in [
            "<title>a title</title>",
            "M60.0 302.7L510.0 184.3",
            "M60.0 302.7L510.0 94.4",
            "as it is",
            "no look-ahead",
            "65536",
        ] {
            assert!(svg.contains(wanted), "{wanted} in {svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 4);
    }

    #[test]
    fn names_of_curves_that_end_together_stay_apart() {
        let svg = svg("", &[spot(256, 10.0, 10.0)]);
        let height = |name: &str| {
            let before = svg.split(name).next().unwrap();
            before.rsplit("y=\"").next().unwrap().split('"').next().unwrap().parse::<f64>().unwrap()
        };
        assert!((height(">as it is") - height(">no look-ahead")).abs() >= 14.0, "{svg}");
    }

    #[test]
    fn lines_are_at_round_numbers() {
        for (value, round) in [(0.3, 0.5), (1.0, 1.0), (9.2, 10.0), (11.0, 20.0), (43.0, 50.0)] {
            assert!((round_up(value) - round).abs() < 1e-9, "{value}");
        }
    }
}
