"""A webhook that does nothing but allow: what any webhook of this kind costs."""

import ssl
import sys

import orjson
import uvloop
from aiohttp import web


async def _allow(request: web.Request) -> web.Response:
    review = orjson.loads(await request.read())
    answer = {"uid": review["request"]["uid"], "allowed": True}
    body = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def main(port: int, certificate: str, key: str) -> None:
    """Serve on loopback until it is ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_post("/", _allow)
    web.run_app(
        app,
        host="127.0.0.1",
        port=port,
        ssl_context=context,
        print=None,
        access_log=None,
        loop=uvloop.new_event_loop(),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
