//! The stream that follows the reply to a trial of look-ahead.

use std::thread;
use std::time::{Duration, Instant};

use bellows_engine::{Control, LookAheadTrial};
use bellows_inspect::control::{Reply, TrialEnd, TrialLine, line_of};

use super::server::ControlAnswer;
use super::stream::{POLL_INTERVAL, Stream};

/// The maximum duration of a trial.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// Begins a trial of look-ahead. Its progress and its results follow the reply.
pub fn try_look_ahead(control: &Control, seconds: f64) -> ControlAnswer {
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|duration| *duration <= MAX_DURATION);
    let Some(duration) = duration else {
        let message = format!("error: a trial cannot take {seconds} seconds; give a time from 0 to 600 s");
        return Reply::Refused { mistake: true, message }.into();
    };
    match control.try_look_ahead() {
        Ok(trial) => ControlAnswer::Stream(Reply::Trying, send_results(trial, duration)),
        Err(error) => Reply::Refused { mistake: false, message: error.to_string() }.into(),
    }
}

fn send_results(trial: LookAheadTrial, duration: Duration) -> Stream {
    Box::new(move |listener| {
        let end = Instant::now() + duration;
        let why = loop {
            let now = Instant::now();
            if listener.has_hung_up()? {
                break TrialEnd::Requested;
            } else if trial.is_over() {
                break TrialEnd::Over;
            } else if now >= end {
                break TrialEnd::Time;
            }
            thread::sleep(POLL_INTERVAL.min(end - now));
            listener.send(&line_of(&TrialLine::Progress { calls: trial.calls() })?)?;
        };
        let results = trial.results();
        // The client may begin the next trial as soon as it reads the end.
        drop(trial);
        listener.send(&line_of(&TrialLine::End { why, results })?)
    })
}
