//! Queues at a real server: `nats-server` with JetStream, and coordinators and workers as processes.

mod access;
mod blocks;
mod crashes;
mod speed;
mod support;
