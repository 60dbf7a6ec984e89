"""Client of the feature service that runs beside every rank."""
import socket
import threading
import torch


class FeatureClient:
    def __init__(self, rank, width):
        self.width = width
        self.sock, theirs = socket.socketpair()
        keys = 5 if rank == 5 else 1000  # entries the service has in memory
        threading.Thread(target=self._serve, args=(theirs, keys), daemon=True).start()

    def _serve(self, sock, keys):
        while request := sock.recv(8):
            key = int.from_bytes(request, "little")
            if key < keys:
                sock.sendall(bytes([key % 250]) * 8)

    def lookup(self, key):
        self.sock.sendall(key.to_bytes(8, "little"))
        answer = self.sock.recv(8)
        return torch.full((1, self.width), answer[0] / 250.0)
