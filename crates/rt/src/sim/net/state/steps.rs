//! Steps of the network at which a node may lose power: that takes all of the world.

use super::*;

impl World {
    /// Something arrives.
    pub(in crate::sim) fn arrive(&mut self, flight: Key) {
        if let Some(node) = self.net.arrive(&mut self.machines, flight) {
            self.count_step(node, Step::Receive);
        }
    }

    /// Sends a frame once there is room.
    pub(in crate::sim::net) fn poll_send(
        &mut self,
        key: Key,
        end: usize,
        frame: &mut Option<Frame>,
        ticket: &mut Option<u64>,
        waker: &Waker,
    ) -> Poll<io::Result<()>> {
        let turn = self.net.take_turn(&self.machines.options.net, (key, end), frame, ticket, waker);
        let (from, frame) = match turn {
            Poll::Ready(Ok(turn)) => turn,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        if !self.count_step(from, Step::Send) {
            self.net.transmit(&mut self.machines, key, end, frame);
        }
        // The next in line looks for itself whether there is room.
        self.net.wake_sender(&mut self.machines, key, end);
        Poll::Ready(Ok(()))
    }
}
