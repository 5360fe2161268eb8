"""Reads files of a server on a few connections: all of them once, then mostly a hundredth of them."""

import random
import socket

FILES, HOT, CONNECTIONS = 4000, 40, 8


def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("/tmp/server")
    return connection, connection.makefile("rb")


def read(connection, number):
    stream, answer = connection
    stream.sendall(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
    length = 0
    while (line := answer.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    assert len(answer.read(length)) == length > 10000


connections = [connect() for _ in range(CONNECTIONS)]
for number in range(FILES):
    read(connections[number % CONNECTIONS], number)
draw = random.Random(1)
while True:
    for connection in connections:
        read(connection, draw.randrange(HOT if draw.random() < 0.95 else FILES))
