"""The container image of the manager, made without Docker, a registry or root: `python -m hack.image`.

One archive comes out, which is an OCI image layout and a Docker archive at once: `docker load`, `podman load`,
`ctr images import`, `kind load image-archive` and `skopeo copy oci-archive:` all take it.

`parent_image` reads what Python and the C library come from, `interpreter` finds the Python in it, `requirements` and
`wheels` bring the dependencies for that Python, `layer` and `archive` write. Nothing of the parent image is run, and
the machine that builds need not resemble it. The same inputs give the same bytes.
"""
