//! Minimum cuts of small networks, by shortest augmenting paths.

use std::collections::VecDeque;

/// More than any sum of capacities.
pub const UNLIMITED: u64 = u64::MAX / 4;

struct Edge {
    to: usize,
    room: u64,
}

/// A network of directed edges. Edge `e ^ 1` is the reverse of edge `e`.
pub struct Network {
    edges: Vec<Edge>,
    out: Vec<Vec<usize>>,
}

impl Network {
    pub fn new(vertices: usize) -> Network {
        Network { edges: Vec::new(), out: vec![Vec::new(); vertices] }
    }

    pub fn connect(&mut self, from: usize, to: usize, capacity: u64) {
        self.out[from].push(self.edges.len());
        self.edges.push(Edge { to, room: capacity });
        self.out[to].push(self.edges.len());
        self.edges.push(Edge { to: from, room: 0 });
    }

    /// The vertices on the source's side of a minimum cut, the smallest such set.
    pub fn cut(mut self, source: usize, sink: usize) -> Vec<bool> {
        loop {
            let came_by = self.search(source);
            if came_by[sink].is_none() {
                return (0..self.out.len()).map(|v| v == source || came_by[v].is_some()).collect();
            }
            self.augment(&came_by, source, sink);
        }
    }

    /// The edge by which a shortest path with room comes to each vertex.
    fn search(&self, source: usize) -> Vec<Option<usize>> {
        let mut came_by = vec![None; self.out.len()];
        let mut queue = VecDeque::from([source]);
        while let Some(vertex) = queue.pop_front() {
            for &edge in &self.out[vertex] {
                let Edge { to, room } = self.edges[edge];
                if room > 0 && to != source && came_by[to].is_none() {
                    came_by[to] = Some(edge);
                    queue.push_back(to);
                }
            }
        }
        came_by
    }

    fn augment(&mut self, came_by: &[Option<usize>], source: usize, sink: usize) {
        let mut path = Vec::new();
        let mut vertex = sink;
        while let Some(edge) = came_by[vertex].filter(|_| vertex != source) {
            path.push(edge);
            vertex = self.edges[edge ^ 1].to;
        }
        let most = path.iter().map(|&edge| self.edges[edge].room).min().unwrap_or(0);
        for edge in path {
            self.edges[edge].room -= most;
            self.edges[edge ^ 1].room += most;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_place_is_cut() {
        let mut network = Network::new(4);
        network.connect(0, 1, UNLIMITED);
        network.connect(1, 2, 3);
        network.connect(1, 2, 4);
        network.connect(2, 3, 9);
        assert_eq!(network.cut(0, 3), [true, true, false, false]);
    }
}
