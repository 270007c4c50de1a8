//! Writes the report of a campaign file, a results folder or a table, and prints it as text: `report SOURCE FILE.html
//! [FOLDER OF SVG]`.

use std::path::Path;

use bellows_report::{Report, ReportOptions, ResultSource};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, file, folder @ ..] = arguments.as_slice() else {
        return Err("usage: report SOURCE FILE.html [FOLDER OF SVG]".into());
    };
    let report = Report::of(&ResultSource::open(Path::new(source), None)?, &ReportOptions::default())?;
    std::fs::write(file, report.html()?)?;
    for picture in folder.first().iter().flat_map(|_| report.pictures()) {
        std::fs::write(Path::new(&folder[0]).join(picture.name + ".svg"), picture.svg)?;
    }
    print!("{}", report.text(100));
    Ok(())
}
