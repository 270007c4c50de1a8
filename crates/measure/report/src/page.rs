//! The page: one file, which needs no network and no script.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;

use crate::draw::{intervals, palette, tiles};
use crate::findings::{is_shown, statement};
use crate::model::{Contrast, Contrasts, Report, Section};
use crate::pictures::{Figure, matrix_captions, matrix_title, overlay, split, time};
use crate::source::ReportError;
use crate::words;

const TEMPLATE: &str = include_str!("../templates/report.html");
const STYLE: &str = include_str!("../templates/report.css");

/// The name of the template, which makes it escape all that it inserts.
const NAME: &str = "report.html";

/// Maximum number of rows of a table of differences. The clearest ones are kept.
const MAX_ROWS: usize = 60;

/// Matrices with more columns have the label within each tile.
const MAX_HEADED: usize = 4;

/// A section with its pictures.
#[derive(Serialize)]
struct PageSection<'r> {
    data: &'r Section,
    overlay: Option<Figure>,
    splits: Vec<PageSplit<'r>>,
    differences: Option<Differences>,
    matrix: PageMatrix,
    time: Option<Figure>,
}

#[derive(Serialize)]
struct PageSplit<'r> {
    factor: &'r str,
    statement: &'r str,
    figure: Option<Figure>,
    differences: Option<Differences>,
}

/// A table of differences.
#[derive(Serialize)]
struct Differences {
    method: String,
    /// Empty if the picture above has it.
    statement: String,
    /// Whether the other tests leave out the other factors.
    is_coarse: bool,
    rows: Vec<DifferenceRow>,
    scale: String,
    left_out: usize,
    has_welch: bool,
    has_dunn: bool,
    has_ratio: bool,
}

#[derive(Serialize)]
struct DifferenceRow {
    panel: Option<String>,
    contrast: Contrast,
    shown: bool,
    numbers: String,
    svg: String,
}

#[derive(Serialize)]
struct PageMatrix {
    title: String,
    captions: Vec<String>,
    is_headed: bool,
    rows: Vec<PageRow>,
}

#[derive(Serialize)]
struct PageRow {
    name: String,
    mark: String,
    tiles: Vec<Tile>,
}

#[derive(Serialize)]
struct Tile {
    column: String,
    /// The step of its colour. None if there is no median.
    step: Option<usize>,
    text: String,
    failed: bool,
}

impl Report {
    /// The report as one HTML file, which needs no network and no script.
    ///
    /// # Errors
    /// [`ReportError::Template`], which is a bug.
    pub fn html(&self) -> Result<String, ReportError> {
        let wrong = |error: minijinja::Error| ReportError::Template(error.to_string());
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(wrong)?;
        environment.set_syntax(syntax);
        environment.add_filter("number", |value: Option<f64>| words::number(value.unwrap_or(f64::NAN)));
        environment.add_filter("whole", |value: Option<f64>| words::whole(value.unwrap_or(f64::NAN)));
        environment.add_filter("ratio", |value: Option<f64>| words::ratio(value.unwrap_or(f64::NAN)));
        environment.add_filter("percent", |value: Option<f64>| words::percent(value.unwrap_or(f64::NAN)));
        environment.add_filter("probability", |value: Option<f64>| words::probability(value.unwrap_or(f64::NAN)));
        environment.add_filter("count", |value: u64| words::count(value as usize));
        environment.add_template(NAME, TEMPLATE).map_err(wrong)?;
        let style = palette::variables() + &palette::style() + STYLE;
        let sections: Vec<PageSection> = self.sections.iter().map(page_section).collect();
        let report = context! {
            title => self.title.as_str(),
            source => self.source.as_str(),
            setup => Serde(&self.setup),
            confirmation => Serde(&self.confirmation),
        };
        let sections = Value::from(Serde(&sections));
        let values = context! { report, sections, style => Value::from_safe_string(style) };
        environment.get_template(NAME).and_then(|template| template.render(values)).map_err(wrong)
    }
}

fn page_section(section: &Section) -> PageSection<'_> {
    let unit = section.unit.as_str();
    let splits = section.splits.iter().map(|found| {
        let figure = split(section, found);
        let stated = |it: &Contrasts| if figure.is_some() { String::new() } else { statement(Some(it), unit) };
        PageSplit {
            factor: &found.factor,
            statement: &found.statement,
            differences: found.contrasts.as_ref().map(|it| differences(it, &found.panels, stated(it), false)),
            figure,
        }
    });
    PageSection {
        data: section,
        overlay: overlay(section),
        splits: splits.collect(),
        differences: section
            .contrasts
            .as_ref()
            .map(|contrasts| differences(contrasts, &[], statement(Some(contrasts), unit), !section.others.is_empty())),
        matrix: page_matrix(section),
        time: time(section),
    }
}

fn differences(contrasts: &Contrasts, panels: &[String], statement: String, is_coarse: bool) -> Differences {
    let axis = intervals::axis_of(contrasts);
    let mut kept: Vec<usize> = (0..contrasts.rows.len()).collect();
    if kept.len() > MAX_ROWS {
        kept.sort_by(|one, other| contrasts.rows[*one].p.total_cmp(&contrasts.rows[*other].p));
        kept.truncate(MAX_ROWS);
        kept.sort_unstable();
    }
    let row = |place: &usize| {
        let contrast = contrasts.rows[*place].clone();
        DifferenceRow {
            panel: contrast.panel.and_then(|panel| panels.get(panel).cloned()),
            shown: is_shown(&contrast),
            numbers: words::estimate(contrast.difference, contrast.low, contrast.high, ""),
            svg: intervals::interval(&contrast, &axis).inline(&contrast.label),
            contrast,
        }
    };
    let has = |of: fn(&Contrast) -> bool| contrasts.rows.iter().any(of);
    Differences {
        method: contrasts.method.clone(),
        statement,
        is_coarse: is_coarse && contrasts.rows.iter().any(|row| row.welch_p.is_some()),
        left_out: contrasts.rows.len() - kept.len(),
        rows: kept.iter().map(row).collect(),
        scale: intervals::scale(&axis).inline("scale of the differences"),
        has_welch: has(|row| row.welch_p.is_some()),
        has_dunn: has(|row| row.dunn_p.is_some()),
        has_ratio: has(|row| row.ratio.is_some()),
    }
}

fn page_matrix(section: &Section) -> PageMatrix {
    let matrix = &section.matrix;
    let tile = |(cell, column): (&Option<crate::model::ModelCell>, &String)| match cell {
        None => Tile { column: column.clone(), step: None, text: "not run".to_owned(), failed: false },
        Some(cell) => Tile {
            column: column.clone(),
            step: cell.median.map(|median| tiles::step_of(matrix, median)),
            text: tiles::text_of(cell),
            failed: cell.failed > 0,
        },
    };
    let row = |row: &crate::model::MatrixRow| PageRow {
        name: if row.levels.is_empty() { "all runs".to_owned() } else { row.levels.join(", ") },
        mark: row.marks.join(", "),
        tiles: row.cells.iter().zip(&matrix.columns).map(tile).collect(),
    };
    PageMatrix {
        title: matrix_title(section),
        captions: matrix_captions(section),
        is_headed: matrix.columns.len() <= MAX_HEADED,
        rows: matrix.drawn.iter().map(|place| row(&matrix.rows[*place])).collect(),
    }
}
