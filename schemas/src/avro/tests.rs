//! Golden bytes, evolution, hostile bytes and round trips of the Avro codecs.

mod evolution;
mod golden;
mod headers;
mod hostile;
mod next;
mod round_trip;
mod samples;
