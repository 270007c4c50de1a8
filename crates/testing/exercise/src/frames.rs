//! The bytes of a stream, split into frames however they arrive.

use bellows_netif::unix::{FrameError, FrameSplitter, MAX_RECEIVED};

/// Splits a stream that is read in pieces of these lengths, again and again, and compares the frames with those that a
/// model finds in the whole stream.
pub fn split(stream: &[u8], pieces: &[u16]) {
    let (mut splitter, mut found) = (FrameSplitter::new(), Vec::new());
    let mut unread = stream;
    let mut pieces = pieces.iter().cycle();
    let end = loop {
        match splitter.next_frame() {
            Ok(Some(frame)) => found.push(frame.to_vec()),
            Err(error) => break Some(error),
            Ok(None) if unread.is_empty() => break None,
            Ok(None) => {
                let piece = pieces.next().map_or(usize::MAX, |piece| usize::from(*piece).max(1));
                let read = splitter.fill(|room| {
                    let count = piece.min(room.len()).min(unread.len());
                    room[..count].copy_from_slice(&unread[..count]);
                    Ok(count)
                });
                let count = read.expect("the read succeeds");
                assert!(count > 0, "there is always room for more bytes");
                unread = &unread[count..];
            }
        }
    };
    assert!((found, end) == model(stream), "other frames than in the whole stream");
    assert_eq!(splitter.next_frame().map(|frame| frame.is_some()), end.map_or(Ok(false), Err), "it stays as it is");
}

/// The frames of a stream, and what is wrong after them.
fn model(mut stream: &[u8]) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let mut frames = Vec::new();
    while stream.len() >= 4 {
        let announced = u32::from_be_bytes([stream[0], stream[1], stream[2], stream[3]]);
        let length = announced as usize;
        if length == 0 {
            return (frames, Some(FrameError::Empty));
        }
        if length > MAX_RECEIVED {
            return (frames, Some(FrameError::TooLong(announced)));
        }
        if stream.len() < 4 + length {
            break;
        }
        frames.push(stream[4..4 + length].to_vec());
        stream = &stream[4 + length..];
    }
    (frames, None)
}
