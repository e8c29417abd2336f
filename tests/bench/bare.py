"""A webhook that allows everything, with one fixed patch if any: the least cost of a webhook."""

import base64
import ssl
import sys
from collections.abc import Awaitable, Callable

import orjson
import uvloop
from aiohttp import web


def _answering(patch: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    given = {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}

    async def answer(request: web.Request) -> web.Response:
        review = orjson.loads(await request.read())
        response = {"uid": review["request"]["uid"], "allowed": True, **(given if patch else {})}
        body = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    return answer


def main(port: int, certificate: str, key: str, patch: str) -> None:
    """Serve on loopback until the process is ended; an empty patch means none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_post("/", _answering(patch))
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
